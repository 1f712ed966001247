"""The used parts of Kubernetes' API objects, as immutable structs.

Attributes carry the API's field names in snake case. A missing text is "", a missing list (), a missing map {}; missing
numbers, times and structs are None. Times stay RFC 3339 text, amounts stay quantities as written.
"""
