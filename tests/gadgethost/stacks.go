// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

const (
	depth       = 127
	sizeOfID    = 32
	statusEmpty = 0
	statusValid = 1
)

// addStacks puts addresses into every struct gadget_user_stack of a row.
func addStacks(g *gadget, row line, of *btf.Struct, buildIDs bool) {
	for _, member := range of.Members {
		inner, ok := member.Type.(*btf.Struct)
		if !ok || inner.Name != "gadget_user_stack" {
			continue
		}
		stack := row[member.Name].(line)
		if stack["inode"] == uint64(0) {
			continue
		}
		id := uint32(stack["stack_id"].(uint64))
		stack["addresses"] = addresses(g.collection.Maps["ig_ustack"], id)
		if buildIDs {
			stack["build_ids"] = buildIDsOf(g.collection.Maps["ig_build_id"], id)
		}
	}
}

// addresses are the frames of a stack, leaf first, up to the first 0.
func addresses(stacks *ebpf.Map, id uint32) []uint64 {
	var frames [depth]uint64
	found := []uint64{}
	if stacks.Lookup(id, &frames) != nil {
		return found
	}
	for _, address := range frames {
		if address == 0 {
			break
		}
		found = append(found, address)
	}
	return found
}

func buildIDsOf(ids *ebpf.Map, id uint32) []string {
	var entries [depth * sizeOfID]byte
	found := []string{}
	if ids.Lookup(id, &entries) != nil {
		return found
	}
	for at := 0; at < len(entries); at += sizeOfID {
		entry := entries[at : at+sizeOfID]
		where := binary.LittleEndian.Uint64(entry[24:])
		switch binary.LittleEndian.Uint32(entry) {
		case statusEmpty:
			return found
		case statusValid:
			found = append(found, fmt.Sprintf("%s +%x", hex.EncodeToString(entry[4:24]), where))
		default:
			found = append(found, fmt.Sprintf("%x", where))
		}
	}
	return found
}
