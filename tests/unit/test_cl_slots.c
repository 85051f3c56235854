/* Replay slots of fp-mount: order of sending, what a broken connection and a forgotten session do
 * (client/slots.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/slots.h"

static struct cl_calls *up(uint32_t nslots)
{
    struct cl_calls *c = calloc(1, sizeof *c);
    struct cl_call_list lost;
    cl_calls_init(c);
    cl_calls_up(c, nslots, false, &lost);
    assert_null(lost.head);
    return c;
}

static void test_slots_nothing_goes_before_hello(void **state)
{
    struct cl_calls *c = calloc(1, sizeof *c);
    struct cl_call a = {0};
    struct cl_call_list lost;
    (void)state;
    cl_calls_init(c);
    cl_calls_add(c, &a);
    assert_null(cl_calls_next(c));
    cl_calls_up(c, 4, false, &lost);
    assert_ptr_equal(cl_calls_next(c), &a);
    assert_int_equal(a.slot, 0);
    free(c);
}

static void test_slots_numbers_grow_in_each_slot(void **state)
{
    struct cl_calls *c = up(1);
    struct cl_call a = {.slotted = true}, b = {.slotted = true};
    (void)state;
    cl_calls_add(c, &a);
    cl_calls_add(c, &b);
    assert_ptr_equal(cl_calls_next(c), &a);
    assert_int_equal(a.slot, 1);
    assert_int_equal(a.slot_seq, 1);
    assert_null(cl_calls_next(c)); /* the only slot is taken */
    cl_calls_done(c, &a);
    assert_ptr_equal(cl_calls_next(c), &b);
    assert_int_equal(b.slot, 1);
    assert_int_equal(b.slot_seq, 2);
    cl_calls_done(c, &b);
    assert_int_equal(c->count, 0);
    free(c);
}

static void test_slots_reading_does_not_wait_for_a_slot(void **state)
{
    struct cl_calls *c = up(1);
    struct cl_call a = {.slotted = true}, b = {.slotted = true}, read = {0};
    (void)state;
    cl_calls_add(c, &a);
    cl_calls_add(c, &b);
    assert_ptr_equal(cl_calls_next(c), &a);
    cl_calls_add(c, &read);
    assert_ptr_equal(cl_calls_next(c), &read);
    assert_null(cl_calls_next(c));
    free(c);
}

static void test_slots_sent_again_in_order_with_same_numbers(void **state)
{
    struct cl_calls *c = up(8);
    struct cl_call call[4] = {{.slotted = true}, {0}, {.slotted = true}, {.slotted = true}};
    struct cl_call_list dropped, lost;
    uint32_t slot[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        cl_calls_add(c, &call[i]);
        assert_ptr_equal(cl_calls_next(c), &call[i]);
        slot[i] = call[i].slot;
    }
    cl_calls_down(c, &dropped);
    assert_null(dropped.head);
    assert_null(cl_calls_next(c));
    cl_calls_add(c, &call[3]); /* new while there is no connection */
    cl_calls_up(c, 8, false, &lost);
    assert_null(lost.head);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(cl_calls_next(c), &call[i]);
        assert_int_equal(call[i].slot, slot[i]);
        assert_int_equal(call[i].slot_seq, i == 1 ? 0 : 1);
    }
    assert_ptr_equal(cl_calls_next(c), &call[3]);
    free(c);
}

static void test_slots_full_queue_keeps_order(void **state)
{
    struct cl_calls *c = up(8);
    struct cl_call a = {0}, b = {0};
    (void)state;
    cl_calls_add(c, &a);
    cl_calls_add(c, &b);
    assert_ptr_equal(cl_calls_next(c), &a);
    cl_calls_unsend(c, &a);
    assert_ptr_equal(cl_calls_next(c), &a);
    assert_ptr_equal(cl_calls_next(c), &b);
    free(c);
}

static void test_slots_detached_keeps_its_slot_until_answered(void **state)
{
    struct cl_calls *c = up(1);
    struct cl_call a = {.slotted = true}, b = {.slotted = true};
    (void)state;
    cl_calls_add(c, &a);
    assert_ptr_equal(cl_calls_next(c), &a);
    assert_false(cl_calls_detach(c, &a));
    cl_calls_add(c, &b);
    assert_null(cl_calls_next(c));
    cl_calls_done(c, &a); /* the late answer */
    assert_ptr_equal(cl_calls_next(c), &b);
    assert_int_equal(b.slot_seq, 2);
    free(c);
}

static void test_slots_unsent_detaches_at_once(void **state)
{
    struct cl_calls *c = up(1);
    struct cl_call a = {.slotted = true}, b = {.slotted = true};
    (void)state;
    cl_calls_add(c, &a);
    cl_calls_add(c, &b);
    assert_ptr_equal(cl_calls_next(c), &a);
    assert_true(cl_calls_detach(c, &b));
    cl_calls_done(c, &a);
    assert_null(cl_calls_next(c));
    assert_int_equal(c->count, 0);
    free(c);
}

static void test_slots_detached_is_dropped_with_the_connection(void **state)
{
    struct cl_calls *c = up(2);
    struct cl_call a = {.slotted = true}, b = {.slotted = true}, next = {.slotted = true};
    struct cl_call_list dropped, lost;
    (void)state;
    cl_calls_add(c, &a);
    cl_calls_add(c, &b);
    assert_ptr_equal(cl_calls_next(c), &a);
    assert_ptr_equal(cl_calls_next(c), &b);
    uint32_t slot = a.slot;
    cl_calls_detach(c, &a);
    cl_calls_down(c, &dropped);
    assert_ptr_equal(cl_call_list_pop(&dropped), &a);
    assert_null(cl_call_list_pop(&dropped));
    cl_calls_up(c, 2, false, &lost);
    assert_ptr_equal(cl_calls_next(c), &b);
    cl_calls_add(c, &next);
    assert_ptr_equal(cl_calls_next(c), &next);
    assert_int_equal(next.slot, slot);
    assert_int_equal(next.slot_seq, 2); /* one number was used up */
    free(c);
}

static void test_slots_new_session_gives_up_what_may_have_been_executed(void **state)
{
    struct cl_calls *c = up(2);
    struct cl_call sent = {.slotted = true}, read = {0}, waiting = {.slotted = true};
    struct cl_call_list dropped, lost;
    (void)state;
    cl_calls_add(c, &sent);
    cl_calls_add(c, &read);
    assert_ptr_equal(cl_calls_next(c), &read);
    assert_ptr_equal(cl_calls_next(c), &sent);
    cl_calls_down(c, &dropped);
    cl_calls_add(c, &waiting);
    cl_calls_up(c, 2, true, &lost);
    assert_ptr_equal(cl_call_list_pop(&lost), &sent);
    assert_null(cl_call_list_pop(&lost));
    assert_ptr_equal(cl_calls_next(c), &read);
    assert_ptr_equal(cl_calls_next(c), &waiting);
    assert_int_equal(waiting.slot_seq, 1); /* numbers begin anew */
    free(c);
}

static void test_slots_new_session_may_have_fewer_slots(void **state)
{
    struct cl_calls *c = up(CL_SLOTS_MAX + 5);
    struct cl_call calls[8];
    struct cl_call_list dropped, lost;
    (void)state;
    memset(calls, 0, sizeof calls);
    assert_int_equal(c->nslots, CL_SLOTS_MAX);
    for (int i = 0; i < 8; i++) {
        calls[i].slotted = true;
        cl_calls_add(c, &calls[i]);
    }
    for (int i = 0; i < 4; i++)
        assert_non_null(cl_calls_next(c));
    cl_calls_down(c, &dropped);
    cl_calls_up(c, 2, true, &lost);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(cl_call_list_pop(&lost), &calls[i]);
    assert_ptr_equal(cl_calls_next(c), &calls[4]);
    assert_ptr_equal(cl_calls_next(c), &calls[5]);
    assert_null(cl_calls_next(c));
    free(c);
}

/* Random walk: a slot never belongs to two requests, and every request comes out exactly once. */
static void test_slots_random_walk_keeps_invariants(void **state)
{
    enum { N = 3000, SLOTS = 7 };
    static struct cl_call calls[N];
    struct cl_calls *c = up(SLOTS);
    struct cl_call_list list;
    unsigned added = 0, out = 0;
    (void)state;
    memset(calls, 0, sizeof calls);
    srand(7);
    while (out < N) {
        int dice = rand() % 100;
        if (dice < 40 && added < N) {
            calls[added].slotted = rand() % 2;
            cl_calls_add(c, &calls[added++]);
        } else if (dice < 70) {
            struct cl_call *call = cl_calls_next(c);
            bool used[SLOTS + 1] = {false};
            for (struct cl_call *p = c->sent.head; p; p = p->next) {
                assert_true(p->slot <= SLOTS);
                assert_false(p->slot != 0 && used[p->slot]);
                used[p->slot] = true;
                assert_true(p->slotted == (p->slot != 0));
            }
            assert_true(!call || call->state == CL_CALL_SENT);
        } else if (dice < 92 && c->sent.head) {
            cl_calls_done(c, rand() % 2 ? c->sent.head : c->sent.tail);
            out++;
        } else if (dice < 95 && c->sent.head) {
            cl_calls_detach(c, c->sent.tail);
        } else if (dice < 97) {
            cl_calls_down(c, &list);
            while (cl_call_list_pop(&list))
                out++;
            cl_calls_up(c, SLOTS, rand() % 4 == 0, &list);
            while (cl_call_list_pop(&list))
                out++;
        }
    }
    assert_int_equal(c->count, 0);
    assert_int_equal(c->nfree, SLOTS);
    free(c);
}

static void test_slots_nothing_overtakes_an_early_call(void **state)
{
    struct cl_calls *c = up(1);
    struct cl_call first = {.slotted = true, .early = true}, second = {.slotted = true, .early = true};
    struct cl_call read = {0}, change = {.slotted = true};
    (void)state;
    cl_calls_add(c, &first);
    cl_calls_add(c, &second);
    cl_calls_add(c, &read);
    cl_calls_add(c, &change);
    assert_ptr_equal(cl_calls_next(c), &first);
    assert_null(cl_calls_next(c)); /* no slot for the second: all wait */
    cl_calls_done(c, &first);
    assert_ptr_equal(cl_calls_next(c), &second);
    assert_ptr_equal(cl_calls_next(c), &read);
    assert_null(cl_calls_next(c));
    cl_calls_done(c, &second);
    assert_ptr_equal(cl_calls_next(c), &change);
    free(c);
}

static void test_slots_early_calls_are_sent_again_in_order(void **state)
{
    struct cl_calls *c = up(2);
    struct cl_call call[3] = {{.slotted = true, .early = true}, {.slotted = true, .early = true}, {.slotted = true, .early = true}};
    struct cl_call read = {0};
    struct cl_call_list dropped, lost;
    (void)state;
    for (int i = 0; i < 3; i++)
        cl_calls_add(c, &call[i]);
    cl_calls_add(c, &read);
    assert_ptr_equal(cl_calls_next(c), &call[0]);
    assert_ptr_equal(cl_calls_next(c), &call[1]);
    cl_calls_down(c, &dropped);
    cl_calls_up(c, 2, false, &lost);
    assert_ptr_equal(cl_calls_next(c), &call[0]);
    assert_ptr_equal(cl_calls_next(c), &call[1]);
    assert_null(cl_calls_next(c));
    cl_calls_done(c, &call[1]);
    assert_ptr_equal(cl_calls_next(c), &call[2]);
    assert_ptr_equal(cl_calls_next(c), &read);
    free(c);
}

static void test_slots_refused_goes_again_as_a_new_request(void **state)
{
    struct cl_calls *c = up(1);
    struct cl_call a = {.slotted = true}, b = {.slotted = true}, read = {0};
    struct cl_call_list lost, dropped;
    (void)state;
    cl_calls_add(c, &a);
    cl_calls_add(c, &b);
    cl_calls_add(c, &read);
    assert_ptr_equal(cl_calls_next(c), &read);
    assert_ptr_equal(cl_calls_next(c), &a);
    cl_calls_refuse(c, &a);
    cl_calls_refuse(c, &read);
    assert_ptr_equal(cl_calls_next(c), &b); /* the slot is free for others */
    assert_int_equal(b.slot_seq, 2);
    assert_null(cl_calls_next(c));
    cl_calls_down(c, &dropped);
    cl_calls_up(c, 1, true, &lost); /* it was not executed: a new session does not matter to it */
    assert_ptr_equal(cl_call_list_pop(&lost), &b);
    assert_null(lost.head);
    assert_null(cl_calls_next(c));
    cl_calls_again(c);
    assert_ptr_equal(cl_calls_next(c), &read);
    assert_ptr_equal(cl_calls_next(c), &a);
    assert_int_equal(a.slot, 1);
    cl_calls_refuse(c, &a);
    assert_true(cl_calls_detach(c, &a)); /* nothing is under way */
    cl_calls_done(c, &read);
    assert_int_equal(c->count, 0);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_nothing_goes_before_hello),
        cmocka_unit_test(test_slots_numbers_grow_in_each_slot),
        cmocka_unit_test(test_slots_reading_does_not_wait_for_a_slot),
        cmocka_unit_test(test_slots_sent_again_in_order_with_same_numbers),
        cmocka_unit_test(test_slots_full_queue_keeps_order),
        cmocka_unit_test(test_slots_detached_keeps_its_slot_until_answered),
        cmocka_unit_test(test_slots_unsent_detaches_at_once),
        cmocka_unit_test(test_slots_detached_is_dropped_with_the_connection),
        cmocka_unit_test(test_slots_new_session_gives_up_what_may_have_been_executed),
        cmocka_unit_test(test_slots_new_session_may_have_fewer_slots),
        cmocka_unit_test(test_slots_nothing_overtakes_an_early_call),
        cmocka_unit_test(test_slots_early_calls_are_sent_again_in_order),
        cmocka_unit_test(test_slots_refused_goes_again_as_a_new_request),
        cmocka_unit_test(test_slots_random_walk_keeps_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
