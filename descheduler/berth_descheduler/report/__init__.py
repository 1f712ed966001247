"""Plans, runs and clusters as texts, tables, pages and JSON documents."""

from berth_descheduler.report.capacity import Capacity, CapacityPoint, CapacityPoints, describe_capacity, describe_point
from berth_descheduler.report.capacity_tables import render_capacity
from berth_descheduler.report.cluster_nodes import HeldCapacityList, NodeList, describe_held_capacity, describe_nodes
from berth_descheduler.report.documents import ALL_IN_JSON, describe_plan, describe_run
from berth_descheduler.report.html import ReportFile, report_option
from berth_descheduler.report.node_signs import draw_nodes
from berth_descheduler.report.page import Occasion, ReportPage
from berth_descheduler.report.plan_page import plan_page, run_page
from berth_descheduler.report.policies import NO_POLICIES, PolicyList, list_policies, render_policies
from berth_descheduler.report.prices import price_option, refuse_second_prices
from berth_descheduler.report.progress import RunProgress
from berth_descheduler.report.schemas import ListedPlan, PlanDocument, PlanList, PlanMove, PlanRoom
from berth_descheduler.report.stored_plan_documents import (
    PlanHead,
    describe_moves,
    describe_rooms,
    describe_stored_plan,
    list_plan,
)
from berth_descheduler.report.stored_plan_page import stored_plan_page
from berth_descheduler.report.stored_plans import (
    NO_PLANS,
    count_states,
    newest_first,
    phase_in_words,
    render_plan_list,
    render_stored_plan,
    render_waiting_rooms,
    what_to_do,
)
from berth_descheduler.report.summary import judge_plan, missing_in_words, summarise_plan
from berth_descheduler.report.tables import print_plan
from berth_descheduler.report.terminal import Terminal, output_console, working
from berth_descheduler.report.top import TopView, describe_view, view_cluster
from berth_descheduler.report.top_frame import Scroll, render_frame

__all__ = [
    "ALL_IN_JSON",
    "NO_PLANS",
    "NO_POLICIES",
    "Capacity",
    "CapacityPoint",
    "CapacityPoints",
    "HeldCapacityList",
    "ListedPlan",
    "NodeList",
    "Occasion",
    "PlanDocument",
    "PlanHead",
    "PlanList",
    "PlanMove",
    "PlanRoom",
    "PolicyList",
    "ReportFile",
    "ReportPage",
    "RunProgress",
    "Scroll",
    "Terminal",
    "TopView",
    "count_states",
    "describe_capacity",
    "describe_held_capacity",
    "describe_moves",
    "describe_nodes",
    "describe_plan",
    "describe_point",
    "describe_rooms",
    "describe_run",
    "describe_stored_plan",
    "describe_view",
    "draw_nodes",
    "judge_plan",
    "list_plan",
    "list_policies",
    "missing_in_words",
    "newest_first",
    "output_console",
    "phase_in_words",
    "plan_page",
    "price_option",
    "print_plan",
    "refuse_second_prices",
    "render_capacity",
    "render_frame",
    "render_plan_list",
    "render_policies",
    "render_stored_plan",
    "render_waiting_rooms",
    "report_option",
    "run_page",
    "stored_plan_page",
    "summarise_plan",
    "view_cluster",
    "what_to_do",
    "working",
]
