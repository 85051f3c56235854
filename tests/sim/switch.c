/*
 * From one thread to the next: called by the scheduler alone, with the baton.
 *
 * A thread begins by putting its registers on its stack, and sleeps from then on without touching it. Whoever runs then goes on there, with that thread's pointer (the register fs, by which
 * thread-local variables and pthread_self are found): one thread of the kernel runs them all, and a switch is some instructions. On other processors, and with SIM_THREADS=1 in the environment,
 * for debuggers, which want to see where each thread is, the kernel's threads run themselves and hand the turn on by a futex.
 */
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/sim/sim.h"

static void wait_turn(struct sim_task *t)
{
    while (!__atomic_load_n(&t->turn, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &t->turn, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    __atomic_store_n(&t->turn, 0, __ATOMIC_RELEASE);
}

static void give_turn(struct sim_task *t)
{
    __atomic_store_n(&t->turn, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &t->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#ifdef __x86_64__
#define FSGSBASE 2 /* of AT_HWCAP2: a program may set fs itself */

void sim_go_on(void **sp, void *to, unsigned long pointer, long may_set);
void sim_park(void **sp, int *parked);

/* clang-format off */
__asm__(".text\n"
        ".globl sim_go_on\n"
        ".type sim_go_on, @function\n"
        "sim_go_on:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    testq %rcx, %rcx\n"
        "    jz 1f\n"
        "    wrfsbase %rdx\n"
        "    jmp 2f\n"
        "1:  movl $158, %eax\n" /* arch_prctl(ARCH_SET_FS, pointer) */
        "    movl $0x1002, %edi\n"
        "    movq %rdx, %rsi\n"
        "    syscall\n"
        "2:  popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size sim_go_on, . - sim_go_on\n"
        ".globl sim_park\n"
        ".type sim_park, @function\n"
        "sim_park:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movl $1, (%rsi)\n" /* from here on the stack is another one's */
        "    movq %rsi, %rdi\n"
        "    movl $202, %eax\n" /* futex(parked, FUTEX_WAKE_PRIVATE, 1) */
        "    movl $129, %esi\n"
        "    movl $1, %edx\n"
        "    syscall\n"
        "3:  movl $34, %eax\n" /* pause() */
        "    syscall\n"
        "    jmp 3b\n"
        ".size sim_park, . - sim_park\n");
/* clang-format on */

static bool by_kernel(void)
{
    static int asked;

    if (!asked)
        asked = getenv("SIM_THREADS") ? 2 : 1;
    return asked == 2;
}

void sim_wait_first_turn(struct sim_task *t)
{
    if (by_kernel()) {
        wait_turn(t);
        return;
    }
    t->pointer = (unsigned long)(uintptr_t)__builtin_thread_pointer();
    sim_park(&t->sp, &t->turn);
}

void sim_switch(struct sim_task *from, struct sim_task *to)
{
    static struct sim_task nobody;
    static long may_set = -1;

    if (by_kernel()) {
        give_turn(to);
        if (from)
            wait_turn(from);
        return;
    }
    if (may_set < 0)
        may_set = (getauxval(AT_HWCAP2) & FSGSBASE) != 0;
    while (!__atomic_load_n(&to->turn, __ATOMIC_ACQUIRE)) /* it is new, and has not begun to sleep */
        syscall(SYS_futex, &to->turn, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    sim_go_on(from ? &from->sp : &nobody.sp, to->sp, to->pointer, may_set);
}
#else
void sim_wait_first_turn(struct sim_task *t)
{
    wait_turn(t);
}

void sim_switch(struct sim_task *from, struct sim_task *to)
{
    give_turn(to);
    if (from)
        wait_turn(from);
}
#endif
