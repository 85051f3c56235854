/*
 * Names of files, of which the manager reads the time step (manager/stepname.h), and patterns of users.
 *
 * Names are bytes of programs, any but slash and NUL. Beside what the sanitizers see: what is said to be the step are the digits of it; a temporary
 * ending changes neither step nor series; a greater number in the place of the step is a later step of the same series.
 */
#include <stdlib.h>
#include <string.h>

#include "fp/tmpname.h"
#include "manager/stepname.h"
#include "tests/fuzz/fuzz.h"

#define NAME_MAX_ 255u

typedef bool parse(const char *name, size_t len, bool directory, struct mgr_step *out);

/* A name in memory of just its size. */
static char *take_name(struct fuzz_in *in, size_t *len)
{
    static const char *const often[] = {"chk_", "step", "epoch=", "time=0", ".tmp", "-of-", "rank", "2000-01-25", "_12:00:00", "00", "7", ".h5", "tmp-", "Global", ".orbax-checkpoint", "tmp"};
    char name[NAME_MAX_ + 1];
    size_t n = 0, want = fuzz_u8(in);

    while (n < want && fuzz_left(in) > 0) {
        uint8_t c = fuzz_u8(in);
        const char *word = c >= 0xf0 ? often[c % (sizeof often / sizeof *often)] : NULL;

        if (word && n + strlen(word) <= NAME_MAX_) {
            memcpy(name + n, word, strlen(word));
            n += strlen(word);
        } else if (c != '/' && c != '\0') {
            name[n++] = (char)c;
        }
    }
    char *exact = malloc(n ? n : 1);
    memcpy(exact, name, n);
    *len = n;
    return exact;
}

static bool same_series(const struct mgr_step *x, const struct mgr_step *y)
{
    return x->template_len == y->template_len && memcmp(x->template, y->template, x->template_len) == 0;
}

static void check_place(const char *name, size_t len, const struct mgr_step *s)
{
    uint64_t step = 0;
    unsigned marks = 0;

    FUZZ_CHECK(s->len > 0 && s->off + s->len <= len && s->template_len > 0 && s->template_len <= MGR_STEP_TEMPLATE_MAX);
    for (uint32_t i = s->off; i < s->off + s->len; i++)
        step = name[i] >= '0' && name[i] <= '9' ? 10 * step + (uint64_t)(name[i] - '0') : step;
    for (const char *dot = memchr(name + s->off, '.', s->len); mgr_step_is_decimal(s) && step < s->step; step *= 10) /* millionths: as many more digits as it lacks decimals */
        FUZZ_CHECK(!dot || s->off + s->len - (size_t)(dot - name) <= 6);
    FUZZ_CHECK(step == s->step);
    for (uint32_t i = 0; i < s->template_len; i++)
        marks += s->template[i] == '#';
    FUZZ_CHECK(marks > 0);
}

static void check_ending(parse *f, const char *name, size_t len, bool directory, const struct mgr_step *s)
{
    char other[NAME_MAX_ + 8];
    struct mgr_step t;

    if (len + 4 > NAME_MAX_)
        return;
    memcpy(other, name, len);
    memcpy(other + len, ".tmp", 4);
    FUZZ_CHECK(f(other, len + 4, directory, &t) && t.temporary && t.step == s->step && same_series(&t, s));
}

/* A nine before the digits; of a date the digits have their places. */
static void check_later(parse *f, const char *name, size_t len, bool directory, const struct mgr_step *s)
{
    char other[NAME_MAX_ + 8];
    struct mgr_step t;

    if (len + 1 > NAME_MAX_ || s->len >= 7 || memchr(name + s->off, '.', s->len))
        return;
    memcpy(other, name, s->off);
    other[s->off] = '9';
    memcpy(other + s->off + 1, name + s->off, len - s->off);
    if (f(other, len + 1, directory, &t) && t.off == s->off && t.len == s->len + 1)
        FUZZ_CHECK(t.step > s->step && same_series(&t, s));
}

static bool last_number(const char *name, size_t len, bool directory, struct mgr_step *out)
{
    return mgr_step_growth(name, len, directory, 0, out);
}

static bool number_before(const char *name, size_t len, bool directory, struct mgr_step *out)
{
    return mgr_step_growth(name, len, directory, 1, out);
}

static void try_name(parse *f, const char *name, size_t len, bool directory)
{
    struct mgr_step s;

    if (!f(name, len, directory, &s))
        return;
    check_place(name, len, &s);
    check_ending(f, name, len, directory, &s);
    check_later(f, name, len, directory, &s);
}

static void try_path(struct fuzz_in *in)
{
    struct mgr_name names[MGR_STEP_ABOVE + 3];
    struct mgr_step s;
    size_t n = fuzz_below(in, MGR_STEP_ABOVE + 3);

    for (size_t i = 0; i < n; i++)
        names[i].name = take_name(in, &names[i].len);
    if (mgr_step_of(names, n, &s)) {
        FUZZ_CHECK(s.above < n && s.above <= MGR_STEP_ABOVE);
        check_place(names[s.above].name, names[s.above].len, &s);
    }
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)names[i].name);
}

static void try_pattern(struct fuzz_in *in)
{
    char pattern[128], path[1024], *exact;
    size_t n = fuzz_bytes(in, (uint8_t *)pattern, fuzz_below(in, sizeof pattern)), len;
    struct mgr_step s;

    pattern[n] = '\0';
    for (size_t i = 0; i + 6 <= n; i++)
        if ((uint8_t)pattern[i] >= 0xf0)
            memcpy(pattern + i, "{step}", 6);
    len = fuzz_bytes(in, (uint8_t *)path, sizeof path);
    exact = malloc(len ? len : 1);
    memcpy(exact, path, len);
    if (mgr_step_pattern(exact, len, pattern, &s) == 1) {
        const char *end = exact + len, *from = exact;

        for (uint32_t above = s.above + 1; above > 0; above--) {
            from = memrchr(exact, '/', (size_t)(end - exact));
            end = above > 1 ? from : end;
        }
        from = from ? from + 1 : exact;
        check_place(from, (size_t)(end - from), &s);
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    uint8_t how = fuzz_u8(&in);
    size_t n, off, body;
    char *name;

    switch (how & 3) {
    case 0:
        try_path(&in);
        break;
    case 1:
        try_pattern(&in);
        break;
    default:
        name = take_name(&in, &n);
        body = fp_tmpname_body(name, n, &off);
        FUZZ_CHECK(off + body <= n && (body > 0 || n == 0));
        try_name(how & 8 ? number_before : how & 1 ? last_number : mgr_step_word, name, n, how & 4);
        (void)mgr_step_is_bare(name, n);
        free(name);
    }
    return 0;
}
