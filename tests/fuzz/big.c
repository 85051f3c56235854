/*
 * Blocks of 128 KiB and more are kept from one input to the next: windows of a scan, buffers of a pool, tables.
 *
 * AddressSanitizer maps each anew and gives it back, and its pages are cleared by the kernel: half of the time of an input that needs a megabyte. malloc
 * and free of all that is linked are replaced by the linker. A block is of exactly its size, and poisoned while nobody has it, so what is written beyond
 * it or after its end is seen as before; so is one that is lost, for the table does not keep the address of what somebody has.
 *
 * A program that leaves the freeing to its end (fp-auxhost) would fill the memory with what each input has left: fuzz_blocks_begin() and _end() free it.
 *
 * Any thread of a harness.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define BIG      ((size_t)128 << 10)
#define KEPT_MAX 32
#define HIDDEN   UINTPTR_MAX /* xor: no address for LeakSanitizer */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void __real_free(void *p);
void __wrap_free(void *p);
char *__wrap_strndup(const char *s, size_t max);
char *__wrap_strdup(const char *s);
void __asan_poison_memory_region(void const volatile *p, size_t size) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *p, size_t size) __attribute__((weak));

static struct kept {
    uintptr_t at; /* 0: none */
    size_t align, size;
    bool used;
} kept[KEPT_MAX];
static _Atomic uintptr_t lowest = UINTPTR_MAX;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *take(size_t align, size_t size)
{
    struct kept *k, *empty = NULL;
    void *p = NULL;

    pthread_mutex_lock(&lock);
    for (k = kept; k < kept + KEPT_MAX; k++) {
        if (k->at && !k->used && k->align == align && k->size == size)
            break;
        if (!k->at)
            empty = k;
    }
    if (k < kept + KEPT_MAX) {
        p = (void *)k->at;
        k->used = true;
        k->at ^= HIDDEN;
        if (__asan_unpoison_memory_region)
            __asan_unpoison_memory_region(p, size);
    } else if ((p = align ? __real_aligned_alloc(align, size) : __real_malloc(size)) && empty) {
        *empty = (struct kept){(uintptr_t)p ^ HIDDEN, align, size, true};
        if ((uintptr_t)p < lowest)
            lowest = (uintptr_t)p;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

static struct kept *find(const void *p)
{
    if ((uintptr_t)p < lowest)
        return NULL;
    for (struct kept *k = kept; k < kept + KEPT_MAX; k++)
        if (k->used && k->at == ((uintptr_t)p ^ HIDDEN))
            return k;
    return NULL;
}

/* -------------------------------------------------------------- what an input leaves */

#define NOTED_MAX 8192u /* a power of 2 */

static void **noted; /* NULL: nobody wants to know */
static size_t nnoted;

static size_t noted_at(const void *p)
{
    size_t at = ((uintptr_t)p >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 51;

    while (noted[at] && noted[at] != p)
        at = (at + 1) % NOTED_MAX;
    return at;
}

static void *note(void *p)
{
    if (noted && p) {
        FUZZ_CHECK(nnoted < NOTED_MAX / 2);
        noted[noted_at(p)] = p;
        nnoted++;
    }
    return p;
}

static void unnote(const void *p)
{
    size_t hole, at;

    if (!noted || !p || !noted[hole = noted_at(p)])
        return;
    noted[hole] = NULL;
    nnoted--;
    for (at = (hole + 1) % NOTED_MAX; noted[at]; at = (at + 1) % NOTED_MAX) { /* those behind it are to be found yet */
        void *q = noted[at];

        noted[at] = NULL;
        noted[noted_at(q)] = q;
    }
}

void fuzz_blocks_begin(void)
{
    static void *table[NOTED_MAX];

    noted = table;
}

size_t fuzz_blocks_end(void)
{
    void **table = noted;
    size_t n = nnoted;

    noted = NULL;
    for (size_t i = 0; i < NOTED_MAX && nnoted > 0; i++)
        if (table[i]) {
            __wrap_free(table[i]);
            table[i] = NULL;
            nnoted--;
        }
    return n;
}

/* -------------------------------------------------------------- what is replaced */

void *__wrap_malloc(size_t size)
{
    return note(size < BIG ? __real_malloc(size) : take(0, size));
}

/* Of libc's own, which calls no malloc of ours. */
char *__wrap_strndup(const char *s, size_t max)
{
    size_t n = strnlen(s, max);
    char *copy = __wrap_malloc(n + 1);

    if (copy) {
        memcpy(copy, s, n);
        copy[n] = '\0';
    }
    return copy;
}

char *__wrap_strdup(const char *s)
{
    return __wrap_strndup(s, strlen(s));
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *p;

    if (n == 0 || n > SIZE_MAX / 2 / (size ? size : 1) || n * size < BIG)
        return note(__real_calloc(n, size));
    p = take(0, n * size);
    if (p)
        memset(p, 0, n * size);
    return note(p);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return note(size < BIG ? __real_aligned_alloc(align, size) : take(align, size));
}

void *__wrap_realloc(void *p, size_t size)
{
    size_t old = 0;
    struct kept *k;
    void *more;

    pthread_mutex_lock(&lock);
    k = find(p);
    old = k ? k->size : 0;
    pthread_mutex_unlock(&lock);
    if (!old) {
        unnote(p);
        more = __real_realloc(p, size);
        note(more ? more : p);
        return more;
    }
    more = __wrap_malloc(size);
    if (more) {
        memcpy(more, p, size < old ? size : old);
        __wrap_free(p);
    }
    return more;
}

void __wrap_free(void *p)
{
    struct kept *k;

    unnote(p);
    if ((uintptr_t)p < lowest) {
        __real_free(p);
        return;
    }
    pthread_mutex_lock(&lock);
    k = find(p);
    if (k) {
        k->used = false;
        k->at ^= HIDDEN;
        if (__asan_poison_memory_region)
            __asan_poison_memory_region(p, k->size);
    } else {
        for (k = kept; k < kept + KEPT_MAX; k++)
            FUZZ_CHECK(k->used || k->at != (uintptr_t)p || !p); /* twice */
        k = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (!k)
        __real_free(p);
}
