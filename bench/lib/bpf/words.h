/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The random words that operations are measured on: those of one turn do not depend on one another, so that neither do the operations. */
#ifndef BENCH_LIB_WORDS_H
#define BENCH_LIB_WORDS_H

#define TURNS 32
#define EACH_TURN 8
#define BENCH_FIRST 0x853c49e6748fea9bULL
#define BENCH_NEXT(base) ((base) * 0x5851f42d4c957f2dULL + 0x14057b7ef767814fULL)
#define BENCH_WORD(base, k) ({ __u64 __w = ((base) + (k) * 0x9e3779b97f4a7c15ULL) * 0xbf58476d1ce4e5b9ULL; __w ^ __w >> 31; })

#endif
