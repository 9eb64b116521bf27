/* Leases 64 MiB, checks that all of it is zero, writes it, says what it was; then everything
 * else that a client can ask: a lease or plain memory, available, a report, a refusal.
 * cc -O2 -I crates/prezerod/include crates/prezerod/examples/lease.c -o lease && ./lease */
#define _GNU_SOURCE
#include "prezero_lease.h"

int main(void)
{
    struct prezero_lease lease, other;
    struct prezero_available there;
    int status, broker = prezero_connect(NULL);
    unsigned char *memory;
    uint64_t at;
    char report[64];

    if (broker < 0) {
        perror("prezerod cannot be reached; does it run?");
        return 1;
    }
    status = prezero_lease_or_plain(broker, 64 << 20, PREZERO_2M, -1, 30000, &lease);
    if (status < 0) {
        fprintf(stderr, "%s\n", lease.text);
        return 1;
    }
    if (status == 0)
        close(lease.fd);
    printf("or plain memory: %s\n", status == 0 ? "there is a lease" : lease.text);
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
    close(lease.fd);

    if (prezero_available(broker, PREZERO_2M, -1, &there, &other) != 0) {
        fprintf(stderr, "%s\n", other.text);
        return 1;
    }
    printf("%llu MiB lie ready, made at %.1f GB/s\n", (unsigned long long)(there.ready >> 20),
           there.pace / 1e9);
    if (prezero_report(broker, PREZERO_METRICS, &other) != 0
        || read(other.fd, report, sizeof report) <= 0 || memcmp(report, "# TYPE prezerod_", 16)) {
        fprintf(stderr, "no report: %s\n", other.text);
        return 1;
    }
    if (prezero_lease(broker, 5, PREZERO_2M, -1, 0, &lease) != 1 || lease.reason != 2) {
        fprintf(stderr, "5 bytes were not refused as they should be: %s\n", lease.text);
        return 1;
    }
    printf("5 bytes: %s\n", lease.text);
    return 0;
}
