# Namespace, striping maps, chunk table.
LIBS += manager
manager_DIRS := manager $(patsubst %/,%,$(wildcard manager/*/))

PROGS += fp-manager
fp-manager_MAIN := manager/main.c
fp-manager_LIBS := manager common
fp-manager_PKGS := sqlite3

# The schema goes into the program as a string, comments and all.
MGR_SCHEMA := $(B)/proto/mgr_schema.inc
$(MGR_SCHEMA): manager/schema.sql
	@mkdir -p $(@D) && sed -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $< > $@
$(O)/obj/manager/db.o: $(MGR_SCHEMA)
