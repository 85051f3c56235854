# What every program shares. The code made from proto/ is part of it.
LIBS += common
common_DIRS := common $(filter-out common/proto,$(patsubst %/,%,$(wildcard common/*/)))
