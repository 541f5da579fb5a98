// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"shunt": main, "shunt-get": fetch, "shunt-manager": manage})
}

// TestScenarios runs the scripts of test/scenario, which its README describes.
func TestScenarios(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make network namespaces; run it with sudo")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "../../test/scenario",
		RequireExplicitExec: true,
		Setup:               setup,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"netns": makeNetns, "in": in, "exits": exits, "until": until, "daemon": startDaemon, "end": endDaemon,
		},
		Condition:     condition,
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// condition is [file:PATH], there is such a file, as a sysctl's that not every kernel has; or [kind:KIND], the kernel makes tunnels of that kind.
func condition(cond string) (bool, error) {
	if path, ok := strings.CutPrefix(cond, "file:"); ok {
		_, err := os.Stat(path)
		return err == nil, nil
	}
	if kind, ok := strings.CutPrefix(cond, "kind:"); ok {
		return exec.Command("unshare", "-n", "ip", "link", "add", "probe", "type", kind, "local", "192.0.2.1", "remote", "192.0.2.2").Run() == nil, nil
	}
	return false, fmt.Errorf("there is no condition %q", cond)
}

var scenarios atomic.Int64

// setup gives each scenario a prefix for the names of its namespaces.
func setup(env *testscript.Env) error {
	prefix := fmt.Sprintf("sc%d-%d-", os.Getpid(), scenarios.Add(1))
	env.Setenv("P", prefix)
	env.Setenv("RUN", filepath.Join(env.WorkDir, "run"))
	env.Setenv("BLINK", fmt.Sprint(waiting.Seconds()/15))
	env.Setenv("PATH", env.Getenv("PATH")+":/usr/sbin:/sbin")
	env.Defer(func() {
		left, _ := filepath.Glob("/run/netns/" + prefix + "*")
		for _, path := range left {
			exec.Command("ip", "netns", "del", filepath.Base(path)).Run()
		}
		mounted, _ := filepath.Glob(filepath.Join(env.WorkDir, "*", "bpf")) // of daemons that were not cleaned up after; else the folder stays behind
		for _, path := range mounted {
			for syscall.Unmount(path, 0) == nil {
			}
		}
	})
	return nil
}

func netnsPath(ts *testscript.TestScript, name string) string {
	return "/run/netns/" + ts.Getenv("P") + name
}

// makeNetns makes network namespaces; "netns -d" deletes them.
func makeNetns(ts *testscript.TestScript, neg bool, args []string) {
	verb := "add"
	if len(args) > 0 && args[0] == "-d" {
		verb, args = "del", args[1:]
	}
	for _, name := range args {
		ts.Check(ts.Exec("ip", "netns", verb, ts.Getenv("P")+name))
	}
}

// command gives a command line its place: "in NAME COMMAND..." runs in a namespace, "shunt" gets the scenario's runtime directory.
func command(ts *testscript.TestScript, args []string) []string {
	var out []string
	if len(args) > 2 && args[0] == "in" {
		out, args = []string{"nsenter", "--net=" + netnsPath(ts, args[1])}, args[2:]
	}
	if len(args) == 0 {
		ts.Fatalf("a command is missing")
	}
	out = append(out, args...)
	if args[0] == "shunt" && !strings.Contains(strings.Join(args, " "), "--runtime-dir") {
		out = append(out, "--runtime-dir", ts.Getenv("RUN"))
	}
	return out
}

// in runs a command in a namespace: in NAME COMMAND...
func in(ts *testscript.TestScript, neg bool, args []string) {
	line := command(ts, append([]string{"in"}, args...))
	if err := ts.Exec(line[0], line[1:]...); (err != nil) != neg {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

// exits runs a command and wants an exit status: exits STATUS [in NAME] COMMAND...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	line := command(ts, args[1:])
	err = ts.Exec(line[0], line[1:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", strings.Join(line, " "), err)
	}
	if got != want {
		ts.Fatalf("%s: exit status %d, want %d", strings.Join(line, " "), got, want)
	}
}

// waiting bounds every waiting; emulated machines need more.
var waiting = 15 * time.Second

// emulated machines run a program a hundred times slower.
var emulated = os.Getenv("SHUNT_VM") != ""

func init() {
	if emulated {
		waiting *= 10
	}
}

// until repeats a command until its output matches: until REGEXP [in NAME] COMMAND...; "! until" until it does not.
func until(ts *testscript.TestScript, neg bool, args []string) {
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	line := command(ts, args[1:])
	for end := time.Now().Add(waiting); ; time.Sleep(10 * time.Millisecond) {
		err := ts.Exec(line[0], line[1:]...)
		if re.MatchString(ts.ReadFile("stdout")+ts.ReadFile("stderr")) != neg {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s: after %s the output does not fit %q (%v)", strings.Join(line, " "), waiting, args[0], err)
		}
	}
}

// startDaemon starts "shunt run" in a namespace and waits until it is ready: daemon NAME [OPTION]...
func startDaemon(ts *testscript.TestScript, neg bool, args []string) {
	line := command(ts, append([]string{"in", args[0], "shunt", "run"}, args[1:]...))
	// A machine that is taken away for half a second would make any answer "watchdog"; internal/control tests that.
	line = append(line, "--watchdog", "20s")
	bin, err := exec.LookPath(filepath.Join(strings.Split(ts.Getenv("PATH"), ":")[0], "shunt"))
	ts.Check(err)
	line[2] = bin
	log, err := os.Create(ts.MkAbs("daemon.log"))
	ts.Check(err)
	c := exec.Command(line[0], line[1:]...)
	c.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"))
	c.Stderr, c.Stdout = log, log
	ts.Check(c.Start())
	done := make(chan struct{})
	go func() { c.Wait(); close(done) }()
	ts.Setenv("PID", strconv.Itoa(c.Process.Pid))
	ts.Defer(func() {
		c.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(waiting):
			c.Process.Kill()
			<-done
		}
		log.Close()
	})
	for end := time.Now().Add(4 * waiting); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if raw, _ := os.ReadFile(log.Name()); strings.Contains(string(raw), "msg=ready") {
			return
		}
		select {
		case <-done:
			raw, _ := os.ReadFile(log.Name())
			ts.Fatalf("the daemon ended: %s", raw)
		default:
		}
	}
	ts.Fatalf("the daemon is not ready after %s", 4*waiting)
}

// endDaemon sends a signal to the daemon and waits until it has ended: end [-1|-9]
func endDaemon(ts *testscript.TestScript, neg bool, args []string) {
	pid, err := strconv.Atoi(ts.Getenv("PID"))
	ts.Check(err)
	signal := syscall.SIGTERM
	if len(args) > 0 && args[0] == "-9" {
		signal = syscall.SIGKILL
	}
	if len(args) > 0 && args[0] == "-1" && !ossignal.Ignored(syscall.SIGHUP) { // the daemon inherits what nohup did to the tests
		signal = syscall.SIGHUP
	}
	ts.Check(syscall.Kill(pid, signal))
	for end := time.Now().Add(waiting); syscall.Kill(pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("the daemon did not end within %s", waiting)
		}
	}
}

// fetch is the command shunt-get URL, for pages that only a namespace can reach.
func fetch() {
	resp, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer resp.Body.Close()
	io.Copy(os.Stdout, resp.Body)
}

// manage is the command shunt-manager COMMAND...: it starts a service as systemd does (Type=notify, WatchdogSec=300ms), prints what the service
// says, asks it to stop after three signs of life, and ends as it does.
func manage() {
	socket := filepath.Join(os.Getenv("WORK"), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	service := exec.Command(os.Args[1], os.Args[2:]...)
	service.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000")
	service.Stderr = os.Stderr
	if err := service.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c.SetReadDeadline(time.Now().Add(4 * waiting))
	buf := make([]byte, 256)
	for alive := 0; ; {
		n, err := c.Read(buf)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			service.Process.Kill()
			os.Exit(1)
		}
		fmt.Printf("%s\n", buf[:n])
		switch {
		case string(buf[:n]) == "WATCHDOG=1":
			if alive++; alive == 3 {
				service.Process.Signal(syscall.SIGTERM)
			}
		case string(buf[:n]) == "STOPPING=1":
			service.Wait()
			os.Exit(service.ProcessState.ExitCode())
		}
	}
}
