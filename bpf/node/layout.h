/* SPDX-License-Identifier: GPL-2.0 */
/* Members of the structures of a bridge and its ports in the kernel's memory, where its type information says that they are (internal/datapath, bridges.go). */
#ifndef SHUNT_NODE_LAYOUT_H
#define SHUNT_NODE_LAYOUT_H

#include "guard.h"

#define BRIDGE(base, member)		((base) + frozen.bridges.member)
#define BRIDGE8(base, member)		peek(BRIDGE(base, member), 8)
#define BRIDGE4(base, member)		((__u32)peek(BRIDGE(base, member), 4))
#define BRIDGE1(base, member)		(BRIDGE4(base, member) & 0xff)	/* never the last of its structure */

#endif
