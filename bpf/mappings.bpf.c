// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which real files a process has mapped for execution: overlayfs hides them
 * elsewhere. An object of its own, since the gadget's image can't have it:
 * Inspektor Gadget takes no iterator that it does not know.
 */
#include "abi.h"

#define VM_EXEC 0x4
#define PAGE_SHIFT 12

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("iter/task_vma")
int list_mappings(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	struct igsdk_mapping row = {};
	struct file *file;

	if (!task || !vma)
		return 0;
	file = vma->vm_file;
	if (!file || !(vma->vm_flags & VM_EXEC))
		return 0;
	row.start = vma->vm_start;
	row.end = vma->vm_end;
	row.offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	row.inode = BPF_CORE_READ(file, f_inode, i_ino);
	row.device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	row.pid = task->tgid;
	bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
	return 0;
}
