#!/usr/bin/env python3
"""What make style says about documentation fails for what is wrong in it, and for nothing else: run before style.py itself."""

import io
import os
import sys
import tempfile
import unittest

import check_docs

TEST_C = "/* Tests. */\nstatic void test_in_c(void **state)\n{\n}\n"
TEST_PY = "def test_it():\n    pass\n\n\n@mark\ndef test_that(x):\n    pass\n"
HEAD = "| rule | what holds | test |\n| --- | --- | --- |\n"
WELL = HEAD + "| A1 | x | tests/e2e/test_a.py::test_it, ::test_that |\n| A2 | y | tests/unit/test_b.c::test_in_c, tests/e2e/test_a.py |\n"


class Docs(unittest.TestCase):
    def setUp(self):
        self.before = os.getcwd()
        self.dir = tempfile.TemporaryDirectory()
        os.chdir(self.dir.name)
        for folder in ("docs", "tests/e2e", "tests/unit"):
            os.makedirs(folder)
        self.put("tests/e2e/test_a.py", TEST_PY)
        self.put("tests/unit/test_b.c", TEST_C)

    def tearDown(self):
        os.chdir(self.before)
        self.dir.cleanup()

    def put(self, name, text):
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)

    def findings(self, check, text, name="docs/CHECKPOINTS.md"):
        self.put(name, text)
        return [(number, finding) for _, number, finding in check([name])]

    def assert_one(self, check, text, line, words):
        found = self.findings(check, text)
        self.assertEqual([number for number, _ in found], [line], found)
        self.assertIn(words, found[0][1])

    def test_what_is_right_is_not_found(self):
        text = WELL + "\nAs tests/e2e/test_a.py::test_it\nsays, and\n::test_that; tests/unit/test_MODULE.c stands for any.\n\n| word | what |\n| --- | --- |\n| x= | no rule |\n"
        self.assertEqual(self.findings(check_docs.check_tests, text), [])
        self.assertEqual(self.findings(check_docs.check_rules, text), [])

    def test_a_test_that_is_not_there(self):
        self.assert_one(check_docs.check_tests, WELL.replace("test_it", "test_gone"), 3, "has no test test_gone")
        self.assert_one(check_docs.check_tests, WELL.replace("test_in_c", "test_gone"), 4, "has no test test_gone")

    def test_a_test_behind_another_one_of_its_file(self):
        self.assert_one(check_docs.check_tests, WELL.replace("::test_that", "::test_gone"), 3, "has no test test_gone")

    def test_a_file_that_is_not_there(self):
        self.assert_one(check_docs.check_tests, WELL.replace("test_b.c::test_in_c", "test_c.c::test_in_c"), 4, "is not there")
        self.assert_one(check_docs.check_tests, WELL.replace(", tests/e2e/test_a.py", ", tests/e2e/test_c.py"), 4, "is not there")

    def test_a_test_of_no_file(self):
        self.assert_one(check_docs.check_tests, WELL.replace("tests/e2e/test_a.py::test_it, ", ""), 3, "of which file")
        self.assert_one(check_docs.check_tests, "As tests/e2e/test_a.py\n\nand ::test_it", 3, "of which file")

    def test_a_rule_without_a_test(self):
        self.assert_one(check_docs.check_rules, WELL + "| A3 | z | |\n", 5, "names no test")

    def test_two_rules_of_a_number(self):
        self.assert_one(check_docs.check_rules, WELL.replace("A2", "A1"), 4, "not a number that only this rule has")

    def test_a_rule_without_a_number(self):
        self.assert_one(check_docs.check_rules, WELL.replace("A2", "second"), 4, "not a number that only this rule has")

    def test_a_page_of_rules_that_has_none(self):
        self.assert_one(check_docs.check_rules, "# Rules\n", 1, "has no rules")

    def test_other_pages_need_no_rules(self):
        self.assertEqual(self.findings(check_docs.check_rules, "# Rules\n", "docs/PROTOCOL.md"), [])


if __name__ == "__main__":
    out = io.StringIO()
    if not unittest.main(exit=False, testRunner=unittest.TextTestRunner(stream=out)).result.wasSuccessful():
        print(out.getvalue())
        sys.exit(1)
