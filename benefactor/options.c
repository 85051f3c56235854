/*
 * Options of fp-benefactor: one table, and what follows from it (host name, cores, segment size).
 *
 * Called once by main, before any thread. Segments are a sixteenth of the contributed size, between 64 MiB
 * and 1 GiB: a small store needs several of them to give space back by unlinking, a large one should not have
 * thousands of files.
 */
#include "benefactor/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benefactor/store.h"
#include "fp/addr.h"
#include "fp/auxwire.h"
#include "fp/drainwire.h"
#include "fp/log.h"
#include "fp/record.h"
#include "fp/units.h"

/* Numbers and ranges, comma-separated. NULL, or what is wrong. */
static const char *parse_cores(const char *text, cpu_set_t *out)
{
    const char *p = text;

    CPU_ZERO(out);
    do {
        char *end;
        unsigned long from, to;

        if (!isdigit((unsigned char)*p))
            return "give numbers and ranges of cores, such as 0,2-5";
        from = to = strtoul(p, &end, 10);
        if (*end == '-' && isdigit((unsigned char)end[1]))
            to = strtoul(end + 1, &end, 10);
        if (from > to || to >= CPU_SETSIZE)
            return "there are no such cores";
        for (unsigned long c = from; c <= to; c++)
            CPU_SET(c, out);
        p = end;
    } while (*p++ == ',');
    return p[-1] == '\0' ? NULL : "give numbers and ranges of cores, such as 0,2-5";
}

static const char *check_cores(const char *text)
{
    cpu_set_t set, ours;
    const char *why = parse_cores(text, &set);

    if (why || sched_getaffinity(0, sizeof(ours), &ours))
        return why;
    CPU_AND(&set, &set, &ours);
    return CPU_COUNT(&set) ? NULL : "none of these cores may be used by this process: see taskset -p $$";
}

static const char *check_backend(const char *text)
{
    static char why[FP_BACKEND_WHY_BUF];
    struct fp_backend_spec spec;

    return fp_backend_parse(text, &spec, why) ? why : NULL;
}

/* A host alone: the port is the one that was listened on. */
static const char *check_advertise(const char *text)
{
    union fp_sockaddr addr;
    size_t len = strlen(text);

    if (text[0] == '[' && len > 2 && text[len - 1] == ']')
        return NULL;
    if (!len || (strchr(text, ':') && fp_addr_numeric(text, 0, &addr)))
        return "give a host name or an address, without a port";
    return NULL;
}

static const struct fp_opt options[] = {
    FP_OPT_MANAGER(struct bnf_options, manager, FP_OPT_REQUIRED),
    FP_OPT_PATH(struct bnf_options, dir, "dir", NULL,
                "Directory that is contributed; made if missing. Its file system should be on the SSD and "
                "able to punch "
                "holes (ext4, xfs, btrfs). With --backend memory it holds the socket and the identity only.",
                .flags = FP_OPT_REQUIRED, .arg = "DIR"),
    FP_OPT_SIZE(struct bnf_options, size_bytes, "size", NULL, FP_MIB(64), FP_TIB(1024),
                "How much is contributed to the store.", .flags = FP_OPT_REQUIRED),
    FP_OPT_STRING(struct bnf_options, backend_text, "backend", "dir",
                  "Where chunks are kept: dir, in files of --dir; memory, which is lost when the program ends, with memory:buffers=3 in that many "
                  "buffers (memory:buffer=256MiB: of that size); or on an emulated device: "
                  "emulated:x25e, or emulated:write=175MB/s,read=250MB/s,write-iops=3300,read-iops=35000, in files of --dir, with over=memory in memory (write and read 20MB/s or more, iops 100 or more).",
                  .arg = "KIND", .check = check_backend),
    FP_OPT_KEY(struct bnf_options, key),
    FP_OPT_NODE(struct bnf_options, node),
    FP_OPT_ADDR(struct bnf_options, listen, "listen", "0.0.0.0:0", 0,
                "Where to listen for mounts of other nodes; port 0 is any free one."),
    FP_OPT_STRING(struct bnf_options, advertise, "advertise", NULL,
                  "Address that other nodes are told to use. By default, the one that reaches the manager.",
                  .arg = "ADDR", .check = check_advertise),
    FP_OPT_DATA_ENCRYPTION(struct bnf_options, data_encryption),
    FP_OPT_SIZE(
        struct bnf_options, segment_bytes, "segment-size", NULL, FP_MIB(32), FP_GIB(64),
        "Size of new segment files. By default, a sixteenth of --size, at least 64 MiB and at most 1 GiB."),
    FP_OPT_SIZE(struct bnf_options, buffer_bytes, "buffers", "128MiB", FP_MIB(20), FP_GIB(64),
                "Memory for chunks that come and go over the network."),
    FP_OPT_INT(struct bnf_options, threads, "threads", "4", 1, 256,
               "Threads that read and write the device."),
    FP_OPT_DURATION(struct bnf_options, device_timeout_ms, "device-timeout", "5s", 1000, FP_HOUR_MS(1),
                    "An operation of the device that takes longer: the device does not answer, and new data goes elsewhere, or waits, until it does."),
    FP_OPT_STRING(struct bnf_options, cores_text, "cores", NULL,
                  "Service cores: the program runs on these alone, such as 0,2-5. By default, anywhere.",
                  .arg = "LIST", .check = check_cores),
    FP_OPT_BOOL(struct bnf_options, drain, "drain", "on", "Write what is kept here to targets, when the manager says so."),
    FP_OPT_RATE(struct bnf_options, drain_max, "drain-max", "0", 0, 0, "How fast to write to a target at most. By default, and with 0, there is no limit.",
                .arg = "RATE"),
    FP_OPT_INT(struct bnf_options, drain_threads, "drain-threads", "2", 1, FP_DW_THREADS_MAX, "Threads that write to a target."),
    FP_OPT_DURATION(struct bnf_options, target_timeout_ms, "target-timeout", "30s", 100, FP_HOUR_MS(1),
                    "A call of a target's file system that takes longer hangs: nothing more is given to it until it comes back."),
    FP_OPT_LIST(struct bnf_options, auxapps, "auxapp", NULL, FP_AUXW_APPS_MAX,
                "An aux-app with the options that it needs to undo what it has done to chunks, as \"encrypt key=/path\": what is drained is the data itself. "
                "Those that need none, such as compress, are found by their name.", .flags = FP_OPT_WHOLE, .arg = "TEXT"),
    FP_OPT_PATH(struct bnf_options, auxapp_dir, "auxapp-dir", NULL, "Where plugins of aux-apps are. By default, where they were installed with this program.",
                .arg = "DIR"),
    FP_OPT_PATH(struct bnf_options, drain_program, "drain-program", NULL, "The program that writes to targets.", .flags = FP_OPT_HIDDEN, .arg = "FILE"),
    FP_OPT_DURATION(struct bnf_options, start_timeout_ms, "start-timeout", "30s", 100, FP_HOUR_MS(24),
                    "How long to try to reach the manager at start."),
    FP_OPT_READY_FD(struct bnf_options, ready_fd),
    FP_OPT_IGNORE_TERM(struct bnf_options, ignore_term),
    FP_OPT_LOG_LEVEL(struct bnf_options, log_level),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-benefactor",
    .section = "benefactor",
    .summary = "Contribute SSD space or memory of this node to an fpstore.",
    .opts = options,
};

static const char *host_name(void)
{
    static char name[256];

    if (gethostname(name, sizeof(name) - 1) || !name[0])
        snprintf(name, sizeof(name), "localhost");
    return name;
}

static uint64_t segment_size(uint64_t size_bytes)
{
    uint64_t bytes = FP_MIB(64);

    while (bytes < FP_GIB(1) && bytes * 16 < size_bytes)
        bytes *= 2;
    return bytes;
}

void bnf_options_parse(struct bnf_options *out, int argc, char **argv)
{
    char why[FP_BACKEND_WHY_BUF];

    fp_opt_parse_or_exit(&table, out, argc, argv);
    (void)fp_backend_parse(out->backend_text, &out->backend, why); /* was checked */
    if (!out->node)
        out->node = host_name();
    if (out->cores_text && !parse_cores(out->cores_text, &out->cpus))
        out->ncpus = (unsigned)CPU_COUNT(&out->cpus);
    if (fp_backend_divide(&out->backend, out->size_bytes, why)) {
        FP_ERROR("--backend %s: %s", out->backend_text, why);
        exit(2);
    }
    if (out->backend.buffers) { /* a segment is a buffer; its header comes on top */
        if (out->segment_bytes) {
            FP_ERROR("--segment-size and --backend %s say both how large segments are: give one", out->backend_text);
            exit(2);
        }
        out->size_bytes = out->backend.buffers * out->backend.buffer_bytes;
        out->segment_bytes = out->backend.buffer_bytes + FP_SEGMENT_HEADER_BYTES;
    }
    if (!out->segment_bytes)
        out->segment_bytes = segment_size(out->size_bytes);
    out->segment_bytes -= out->segment_bytes % FP_RECORD_ALIGN_BYTES;
}
