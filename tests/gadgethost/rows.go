// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// enums names numbers: the running kernel's enum of a name goes before the object's.
type enums map[string]*btf.Enum

func kernelEnums(types *btf.Spec) enums {
	found := enums{}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return found
	}
	for one, err := range types.All() {
		var theirs *btf.Enum
		mine, ok := one.(*btf.Enum)
		if err == nil && ok && kernel.TypeByName(mine.Name, &theirs) == nil {
			found[mine.Name] = theirs
		}
	}
	return found
}

func (e enums) name(of *btf.Enum, number uint64) string {
	if theirs := e[of.Name]; theirs != nil {
		of = theirs
	}
	for _, one := range of.Values {
		if one.Value == number {
			return one.Name
		}
	}
	return "UNKNOWN"
}

// decode adds the members of a struct to a row. What Inspektor Gadget makes no field of
// is left out: members behind a typedef of a struct, and those called __SOMETHING.
func (e enums) decode(row line, of *btf.Struct, data []byte) {
	for _, member := range of.Members {
		if member.Name == "" || strings.HasPrefix(member.Name, "__") {
			continue
		}
		e.member(row, member, data[member.Offset.Bytes():])
	}
}

func (e enums) member(row line, member btf.Member, data []byte) {
	switch one := member.Type.(type) {
	case *btf.Struct:
		inner := line{}
		e.decode(inner, one, data)
		row[member.Name] = inner
	case *btf.Enum:
		number := whole(data, one.Size, one.Signed)
		row[member.Name] = number
		if short, ok := strings.CutSuffix(member.Name, "_raw"); ok {
			row[short] = e.name(one, raw(data, one.Size))
		}
	default:
		if value := plain(member.Type, data); value != nil {
			row[member.Name] = value
		}
	}
}

func plain(of btf.Type, data []byte) any {
	switch one := bare(of).(type) {
	case *btf.Int:
		if one.Encoding == btf.Bool {
			return data[0] != 0
		}
		return whole(data, one.Size, one.Encoding == btf.Signed)
	case *btf.Enum:
		return whole(data, one.Size, one.Signed)
	case *btf.Float:
		if one.Size == 4 {
			return math.Float32frombits(uint32(raw(data, 4)))
		}
		return math.Float64frombits(raw(data, 8))
	case *btf.Array:
		return array(one, data)
	}
	return nil
}

func array(of *btf.Array, data []byte) any {
	element, ok := bare(of.Type).(*btf.Int)
	if !ok {
		return nil
	}
	if element.Size == 1 && element.Encoding == btf.Signed {
		text, _, _ := bytes.Cut(data[:of.Nelems], []byte{0})
		return string(text)
	}
	values := make([]any, of.Nelems)
	for i := range values {
		values[i] = plain(element, data[uint32(i)*element.Size:])
	}
	return values
}

func raw(data []byte, size uint32) uint64 {
	var whole [8]byte
	copy(whole[:], data[:size])
	return binary.LittleEndian.Uint64(whole[:])
}

func whole(data []byte, size uint32, signed bool) any {
	number := raw(data, size)
	if signed {
		unused := 64 - 8*size
		return int64(number<<unused) >> unused
	}
	return number
}
