// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// attach attaches all programs by their sections. Missing are symbols of a library that
// are not in it, which is no error.
func attach(g *gadget, o options) (attached, missing []string, err error) {
	libraries, err := openLibraries(o.libraries)
	if err != nil {
		return nil, nil, err
	}
	names := make([]string, 0, len(g.spec.Programs))
	for name := range g.spec.Programs {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if slices.Contains(o.disabled, name) {
			continue
		}
		program, section := g.collection.Programs[name], g.spec.Programs[name].SectionName
		switch err := attachOne(program, name, section, libraries, o); {
		case errors.Is(err, errNoSymbol):
			missing = append(missing, name)
		case err != nil:
			return nil, nil, fmt.Errorf("attaching %s (%s): %w", name, section, err)
		default:
			attached = append(attached, name)
		}
	}
	return attached, missing, nil
}

// links are what is attached; they must not be collected before the end.
var links []io.Closer

func keep(one io.Closer, err error) error {
	if err == nil {
		links = append(links, one)
	}
	return err
}

// detach closes all links at once: each waits for a grace period of the kernel, which
// those that wait together share.
func detach() {
	var all sync.WaitGroup
	for _, one := range links {
		all.Go(func() { _ = one.Close() })
	}
	all.Wait()
}

func attachOne(program *ebpf.Program, name, section string, libraries map[string]*library,
	o options) error {
	kind, target, _ := strings.Cut(section, "/")
	switch kind {
	case "uprobe", "uretprobe":
		return attachProbe(program, target, kind == "uretprobe", libraries, o)
	case "raw_tracepoint", "raw_tp":
		return keep(link.AttachRawTracepoint(
			link.RawTracepointOptions{Name: target, Program: program}))
	case "tracepoint":
		group, event, _ := strings.Cut(target, "/")
		return keep(link.Tracepoint(group, event, program, nil))
	case "perf_event":
		return attachSampler(program, name, o.frequencies)
	}
	return fmt.Errorf("unsupported section name")
}

var errNoSymbol = errors.New("no such symbol")

// library is an ELF file that probes go into: functions by name, as offsets in the file.
type library struct {
	executable *link.Executable
	functions  map[string]uint64
}

func openLibraries(given []string) (map[string]*library, error) {
	found := map[string]*library{}
	for _, text := range given {
		name, path, _ := strings.Cut(text, "=")
		executable, err := link.OpenExecutable(path)
		if err != nil {
			return nil, err
		}
		functions, err := functionsOf(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found[name] = &library{executable, functions}
	}
	return found, nil
}

// functionsOf reads .symtab and then .dynsym; whole names, functions only.
func functionsOf(path string) (map[string]uint64, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	static, _ := file.Symbols()
	dynamic, _ := file.DynamicSymbols()
	found := map[string]uint64{}
	for _, symbol := range append(static, dynamic...) {
		if elf.ST_TYPE(symbol.Info) != elf.STT_FUNC || symbol.Section == elf.SHN_UNDEF {
			continue
		}
		if _, known := found[symbol.Name]; known {
			continue
		}
		for _, part := range file.Progs {
			if part.Type == elf.PT_LOAD && symbol.Value-part.Vaddr < part.Filesz {
				found[symbol.Name] = symbol.Value - part.Vaddr + part.Off
			}
		}
	}
	return found, nil
}

func attachProbe(program *ebpf.Program, target string, atReturn bool,
	libraries map[string]*library, o options) error {
	name, symbol, ok := strings.Cut(target, ":")
	if !ok {
		return fmt.Errorf("section is not FILE:SYMBOL")
	}
	into := libraries[name]
	if into == nil {
		return fmt.Errorf("no --library %s=PATH", name)
	}
	offset, ok := into.functions[symbol]
	if !ok {
		return errNoSymbol
	}
	if o.multi {
		return attachMulti(program, into, offset, atReturn)
	}
	options := &link.UprobeOptions{Address: offset}
	if atReturn {
		return keep(into.executable.Uretprobe(symbol, program, options))
	}
	return keep(into.executable.Uprobe(symbol, program, options))
}

// attachMulti: Inspektor Gadget does not do this, but what is attached so is closed in
// parallel, where the others take a tenth of a second each under one lock.
func attachMulti(program *ebpf.Program, into *library, offset uint64, atReturn bool) error {
	options := &link.UprobeMultiOptions{Addresses: []uint64{offset}}
	if atReturn {
		return keep(into.executable.UretprobeMulti(nil, program, options))
	}
	return keep(into.executable.UprobeMulti(nil, program, options))
}

// attachSampler opens one software clock per CPU.
func attachSampler(program *ebpf.Program, name string, frequencies []string) error {
	frequency := 0
	for _, text := range frequencies {
		if of, value, _ := strings.Cut(text, "="); of == name {
			frequency, _ = strconv.Atoi(value)
		}
	}
	if frequency <= 0 {
		return fmt.Errorf("no --frequency %s=HZ", name)
	}
	cpus, err := onlineCPUs()
	if err != nil {
		return err
	}
	for _, cpu := range cpus {
		if err := sample(program, cpu, frequency); err != nil {
			return err
		}
	}
	return nil
}

func sample(program *ebpf.Program, cpu, frequency int) error {
	attributes := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample_type: unix.PERF_SAMPLE_RAW,
		Sample:      uint64(frequency),
		Bits:        unix.PerfBitFreq,
	}
	fd, err := unix.PerfEventOpen(&attributes, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("opening the clock of CPU %d: %w", cpu, err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program.FD()); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
}

func onlineCPUs() ([]int, error) {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, part := range strings.Split(strings.TrimSpace(string(text)), ",") {
		low, high, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		if err != nil {
			return nil, err
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(high); err != nil {
				return nil, err
			}
		}
		for cpu := first; cpu <= last; cpu++ {
			found = append(found, cpu)
		}
	}
	return found, nil
}
