// SPDX-License-Identifier: Apache-2.0

// Gadgethost runs a gadget's object by Inspektor Gadget's rules, as far as they concern
// the object: it is for kernels without kprobes, where Inspektor Gadget itself finds no
// library, and it fails aloud where Inspektor Gadget only logs.
//
//	gadgethost [flags] OBJECT
//
// Rows come as JSON lines on standard output; a line "drain" on standard input asks for
// one more reading of the maps. SIGTERM or SIGINT: one last reading, then exit status 0.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
)

type words []string

func (w *words) String() string { return strings.Join(*w, ",") }

func (w *words) Set(text string) error {
	*w = append(*w, text)
	return nil
}

type options struct {
	object      string
	parameters  words // NAME=VALUE: what the gadget declares as a parameter
	settings    words // NAME=VALUE: any other constant
	libraries   words // NAME=PATH
	disabled    words // programs that are not attached
	frequencies words // PROGRAM=HZ
	mntns       words // inodes; filters as soon as there is one
	sizes       words // MAP=ENTRIES
	otel        string
	interval    time.Duration
	perfBuffer  bool
	prepareOnly bool
	buildIDs    bool
	multi       bool
}

func parse() options {
	var o options
	flag.Var(&o.parameters, "param", "NAME=VALUE of a declared parameter")
	flag.Var(&o.settings, "set", "NAME=VALUE of any constant")
	flag.Var(&o.libraries, "library", "NAME=PATH, for sections uprobe/NAME:SYMBOL")
	flag.Var(&o.disabled, "disabled", "program that is loaded and not attached")
	flag.Var(&o.frequencies, "frequency", "PROGRAM=HZ of a perf_event program")
	flag.Var(&o.mntns, "mntns", "mount namespace to let through")
	flag.Var(&o.sizes, "entries", "MAP=ENTRIES")
	flag.StringVar(&o.otel, "otel", "", "object with a program that stands in for OTel's")
	flag.DurationVar(&o.interval, "interval", time.Second, "between readings of maps; 0: none")
	flag.BoolVar(&o.perfBuffer, "perf-buffer", false, "perf buffers, as on kernels without rings")
	flag.BoolVar(&o.prepareOnly, "prepare-only", false, "load, print the time, end")
	flag.BoolVar(&o.buildIDs, "build-ids", false, "show build ids of stacks")
	flag.BoolVar(&o.multi, "multi", false, "attach by multi links, which are closed quickly")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	o.object = flag.Arg(0)
	return o
}

func main() {
	if err := run(parse()); err != nil {
		fmt.Fprintf(os.Stderr, "gadgethost: %v\n", err)
		os.Exit(1)
	}
}

func run(o options) error {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	begun := time.Now()
	gadget, err := load(o)
	if err != nil {
		return err
	}
	say(line{"loaded": true, "seconds": time.Since(begun).Seconds(),
		"programs": len(gadget.collection.Programs), "maps": len(gadget.collection.Maps)})
	if o.prepareOnly {
		return nil
	}
	reader, err := startReading(gadget, o)
	if err != nil {
		return err
	}
	attached, missing, err := attach(gadget, o)
	if err != nil {
		return err
	}
	say(line{"ready": true, "attached": attached, "missing": missing})
	reader.serve(stopped, o.interval)
	detach()
	return nil
}

// gadget is a loaded object with what its markers say.
type gadget struct {
	spec       *ebpf.CollectionSpec
	collection *ebpf.Collection
	markers    markers
	enums      enums
}
