/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How large tables are unless a runtime changes it before load. Nobody does under
 * Inspektor Gadget: what only the local runtime uses is next to nothing in the image,
 * and what is left must be small enough to lie beside others.
 */
#ifndef IGSDK_SIZES_H
#define IGSDK_SIZES_H

#ifdef IGSDK_GADGET
#define ACCOUNTS 16384
#define USAGES 8192
#define PROCESSES 4096
#define SUMS 8192
#define RUNTIME_ENTRIES(N) 64
#define RUNTIME_BYTES(N) 65536 /* a page, of whatever size */
#else
#define ACCOUNTS 65536
#define USAGES 16384
#define PROCESSES 4096
#define RUNTIME_ENTRIES(N) (N)
#define RUNTIME_BYTES(N) (N)
#endif

#define LIVE_ENTRIES 262144
#define HANDLES 16384

#endif
