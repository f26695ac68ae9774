# The house's verbs. `make` alone prints them.
PYTHON := .venv/bin/python
FUZZ_SECONDS ?= 600
TESTS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-stop site screenshots newcomer console-cost observe cluster cluster-stop cluster-demo elastic test check bench native-test fuzz chaos chaos-ring elastic-chaos chaos-storm chaos-pipe hostile failover bad-disk clean simulate simulate-gossip deb dist boot ktls

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing and leave a working .venv/bin/barco
	@scripts/setup.sh

demo: setup ## Start a broker, load 336,776 flights, read them back, ask Spark, print a table
	@$(PYTHON) scripts/demo.py

demo-stop: ## Stop the broker that the demo left running
	@$(PYTHON) scripts/demo.py --stop

observe: setup ## A broker, or the one that runs, and a Prometheus with barco's rules; says where the board is
	@$(PYTHON) scripts/observe.py

cluster: setup ## Start three brokers on 127.0.0.1, .2 and .3; their data is in .cluster
	@$(PYTHON) scripts/cluster.py start

cluster-stop: setup ## Stop the three brokers
	@$(PYTHON) scripts/cluster.py stop

cluster-demo: setup ## Empty .cluster, start it anew, load the flights, SIGKILL a broker: nothing is lost
	@$(PYTHON) scripts/cluster_demo.py

elastic: setup ## Three brokers become six and three again while flights flow in: nothing is lost, pictures and a table
	@$(PYTHON) scripts/elastic_demo.py

# In a whole run what fails is tried once more, a moment later, and said (see tests/conftest.py for what is not).
test: setup native-test ## Run the tests, in three processes (TESTS=path for some of them, in one)
	$(PYTHON) -m pytest $(or $(TESTS),-n 3 --reruns 1 --reruns-delay 3 -rfER)

check: setup ## Lint, types, house rules
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy --strict -p barco
	$(PYTHON) -m pytest -q tests/tidy

bench: setup ## Measure; prints a table (PAGE=1: and keeps it in bench/results/)
	@$(PYTHON) -c "$$NEEDS" bench | $(PYTHON) -m pip install --quiet --disable-pip-version-check -r /dev/stdin
	$(if $(PAGE),BARCO_BENCH_PAGE=1) $(PYTHON) -m pytest bench

# Only what the extra names: to install barco again would be a second build, with options of its own.
define NEEDS
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"][sys.argv[1]], sep="\n")
endef
export NEEDS

site: setup ## These documents, the HTTP API and each command's help as a site, in build/site/html
	@$(PYTHON) -c "$$NEEDS" site | $(PYTHON) -m pip install --quiet --disable-pip-version-check -r /dev/stdin
	@$(PYTHON) scripts/site.py

screenshots: setup ## Pictures of the console of a ring that is used, in docs/images (needs Chromium)
	@$(PYTHON) -c "$$NEEDS" look | $(PYTHON) -m pip install --quiet --disable-pip-version-check -r /dev/stdin
	@$(PYTHON) scripts/screenshots.py

newcomer: setup ## Seconds from `make demo` to having seen ring, live event, lag and dead letter (needs Chromium)
	@$(PYTHON) -c "$$NEEDS" look | $(PYTHON) -m pip install --quiet --disable-pip-version-check -r /dev/stdin
	@$(PYTHON) scripts/newcomer.py

console-cost: setup ## What ten consoles cost a broker, in CPU time: a line for each page (needs Chromium)
	@$(PYTHON) -c "$$NEEDS" look | $(PYTHON) -m pip install --quiet --disable-pip-version-check -r /dev/stdin
	@$(PYTHON) -m bench.consoles

native-test: setup ## Build the C core with sanitizers and run its own tests
	@cd native && cmake --preset sanitize >/dev/null && cmake --build --preset sanitize -- --quiet
	@cd native && ctest --preset sanitize --output-log ../build/native-sanitize/ctest.log >/dev/null \
	    || { cat ../build/native-sanitize/ctest.log; exit 1; }

fuzz: setup ## Fuzz each parser of the C core for FUZZ_SECONDS (needs clang)
	@scripts/fuzz.sh $(FUZZ_SECONDS)

chaos: setup ## One broker and rings of three, hurt under load (BARCO_CHAOS_ROUNDS of each kind, BARCO_SPARK_KILLS)
	$(PYTHON) -m pytest -m chaos tests/faults tests/spark tests/integration tests/simulator tests/barco/supervisor

ROUNDS ?= 0
SECONDS ?= 3600
KIND ?=
EASE ?= 60
chaos-ring: setup ## ROUNDS faults of each kind (or one KIND="kill one") on rings, SECONDS at most; a table
	$(PYTHON) tests/faults/chaos.py --rounds $(ROUNDS) --seconds $(SECONDS) --ease $(EASE) $(if $(KIND),--kind "$(KIND)")

elastic-chaos: setup ## ROUNDS rings that grow and shrink 3 → 4 → 6 → 3 (SIZES=4,6,3) under load, every second one (HURT=always) with FAULTS=kill,partition,power
	@$(PYTHON) tests/faults/elastic.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SIZES),--sizes $(SIZES)) $(if $(HURT),--hurt $(HURT)) $(if $(FAULTS),--faults $(FAULTS))

chaos-storm: setup ## Group consumers die, return and commit for SECONDS, brokers die: a checker of deliveries
	BARCO_CHAOS_STORM_SECONDS=$(SECONDS) $(PYTHON) -m pytest -s -m chaos tests/faults/test_storm.py

chaos-pipe: setup ## Producers, a pipeline that is killed and fenced, brokers that die, for SECONDS: each event once at the output
	BARCO_PIPE_SECONDS=$(SECONDS) $(PYTHON) -m pytest -s -m chaos tests/faults/test_pipes.py

hostile: setup ## A member that lies, in each protocol, to two honest ones for SECONDS (from SEED): none dies, nothing is lost, no gap
	BARCO_HOSTILE_SECONDS=$(SECONDS) BARCO_HOSTILE_SEED=$(SEED) $(PYTHON) -m pytest -s -m chaos tests/security/test_member.py tests/security/test_gossip_ring.py

TIMES ?= 21
failover: setup ## How long writes wait for kill, SIGTERM and return of a broker, TIMES each: a table
	$(PYTHON) tests/faults/failover.py --times $(TIMES)

bad-disk: TIMES = 10
bad-disk: setup ## A follower's disk that is slow or hangs, in turns with good ones; a leader's: a table
	$(PYTHON) tests/faults/baddisk.py --times $(TIMES)

simulate-gossip: setup ## Gossip in simulated clusters of up to 3,072 brokers: a table
	$(PYTHON) tests/simulator/gossip/measure.py

MINUTES ?= 60
SEED ?= 1000
simulate: setup ## Whole clusters under simulated faults for MINUTES (SEED=first seed)
	$(PYTHON) -m tests.simulator --minutes $(MINUTES) --from $(SEED) --states 20000

dist: setup ## The sdist and the wheel (manylinux), in dist/
	@scripts/dist.sh

deb: setup ## A Debian package, in dist/
	@scripts/deb.sh

# Where no KVM boots that kernel each instruction is translated: then it takes longer.
ktls: setup native-test ## The tests of TLS in a guest whose kernel seals large answers (root, qemu, Debian's kernel; 10 minutes)
	@$(PYTHON) tests/guest/boot.py build/native-sanitize/test_tls_kernel
	@$(PYTHON) tests/guest/boot.py --set BARCO_TLS_KERNEL=auto $(PYTHON) -m pytest -q -p no:cacheprovider --basetemp=/scratch/tests \
	    $(or $(TESTS),tests/integration/test_tls_kernel.py tests/integration/test_tls.py tests/integration/test_tls_others.py)

boot: deb ## The package under a real systemd: three units started, killed, reloaded, removed (root, debootstrap)
	$(PYTHON) tests/packaging/boot.py
	$(PYTHON) tests/packaging/hosts.py

clean: ## Remove everything that was built, and the virtual environment
	rm -rf .venv build dist fuzz-out .demo .cluster .elastic .pytest_cache .mypy_cache .ruff_cache .benchmarks
	find barco/ workers/ tests/ bench/ -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f barco/*.so
