"""Distances at which weights are fetched before they are read.

A processor fetches ahead by itself what is read in the order of addresses, but not enough of it to
keep memory busy: a row of float16 was multiplied at 72 to 85 % of the speed of a loop that only
reads, and is at 87 to 97 % with fetches (Zen 5). Of other orders it makes nothing.
"""

LINE = 64  # bytes of a cache line
# Bytes between what is read and what is fetched for later: 4 to 8 KiB are as good.
AHEAD = 6 << 10
# Steps of quantized weights whose lines are fetched at once. One by one they come later: a row of
# Q6_K and Q3_K is read at 72 to 75 % of the speed of memory, not at 78 to 83 % (Zen 5).
BURST = 8
