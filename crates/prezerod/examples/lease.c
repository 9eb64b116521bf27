/* Leases 64 MiB, checks that all of it is zero, writes it, says what it was.
 * cc -O2 -I crates/prezerod/include crates/prezerod/examples/lease.c -o lease && ./lease */
#define _GNU_SOURCE
#include "prezero_lease.h"

int main(void)
{
    struct prezero_lease lease;
    int broker = prezero_connect(NULL);
    unsigned char *memory;
    uint64_t at;

    if (broker < 0) {
        perror("prezerod cannot be reached; does it run?");
        return 1;
    }
    if (prezero_lease(broker, 64 << 20, PREZERO_2M, -1, 30000, &lease) != 0) {
        fprintf(stderr, "%s\n", lease.text);
        return 1;
    }
    memory = prezero_map(&lease);
    if (!memory) {
        perror("the lease cannot be mapped");
        return 1;
    }
    for (at = 0; at < lease.bytes; at++) {
        if (memory[at] != 0) {
            fprintf(stderr, "byte %llu is %d\n", (unsigned long long)at, memory[at]);
            return 1;
        }
        memory[at] = 1;
    }
    printf("%llu MiB on node %d, waited %.3f ms\n", (unsigned long long)(lease.bytes >> 20),
           lease.node, lease.waited_ns / 1e6);
    if (prezero_lease(broker, 5, PREZERO_2M, -1, 0, &lease) != 1 || lease.reason != 2) {
        fprintf(stderr, "5 bytes were not refused as they should be: %s\n", lease.text);
        return 1;
    }
    printf("5 bytes: %s\n", lease.text);
    return 0;
}
