// The one program of all images on real nodes: the pause container, a server, a job, a hook and a container that fails.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	role := "pause"
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch role {
	case "serve":
		serve(os.Args[2:])
	case "work":
		work(os.Args[2:])
	case "sleep":
		sleep(os.Args[2:])
	case "fail":
		report("failing as it was asked")
		os.Exit(1)
	default:
		pause()
	}
}

func report(format string, values ...any) {
	fmt.Printf("%s %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, values...))
}

// pause ends on SIGTERM and reaps orphans, which is the duty of the first process of a process namespace.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// work ends by itself after some time, as a Job's pod does.
func work(arguments []string) {
	flags := flag.NewFlagSet("work", flag.ExitOnError)
	duration := flags.Duration("for", 10*time.Second, "how long the work takes")
	_ = flags.Parse(arguments)
	report("work begins")
	time.Sleep(*duration)
	report("work is done")
}

// sleep is for exec hooks.
func sleep(arguments []string) {
	if len(arguments) > 0 {
		if duration, err := time.ParseDuration(arguments[0]); err == nil {
			time.Sleep(duration)
		}
	}
}

// serve answers every request with its pod and node, and /ready once it is ready.
func serve(arguments []string) {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	port := flags.Int("port", 8080, "where to listen")
	start := flags.Duration("start", 0, "pause before it listens")
	ready := flags.Duration("ready", 0, "pause before /ready answers 200")
	drain := flags.Duration("drain", 0, "how long it serves on after SIGTERM")
	crash := flags.Duration("crash", 0, "end with exit code 1 after so long; 0 is never")
	home := flags.String("home", "", "the node on which it starts at once and does not crash; empty is none")
	_ = flags.Parse(arguments)
	node := os.Getenv("NODE")
	if *home != "" && *home == node {
		*start, *ready, *crash = 0, 0, 0
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if *crash > 0 {
		time.Sleep(*crash)
		report("crashing as it was asked")
		os.Exit(1)
	}
	time.Sleep(*start)
	began := time.Now()
	var served atomic.Int64
	http.HandleFunc("/ready", func(answer http.ResponseWriter, _ *http.Request) {
		if time.Since(began) < *ready {
			http.Error(answer, "not ready yet", http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		fmt.Fprintf(answer, "%s %s\n", os.Getenv("POD"), node)
	})
	go func() {
		if err := http.ListenAndServe(fmt.Sprintf(":%d", *port), nil); err != nil {
			report("cannot listen: %v", err)
			os.Exit(2)
		}
	}()
	report("serving on port %d of %s", *port, node)
	<-signals
	report("SIGTERM after %d requests, serving for another %s", served.Load(), *drain)
	time.Sleep(*drain)
	report("ends after %d requests", served.Load())
}
