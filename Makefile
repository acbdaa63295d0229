# make demo    the whole idea, from a fresh clone: demo/report.html
# make test    every test          make check   style, types, layers, spelling, documentation
# make bench   every benchmark     make docs    the documentation as a site     make clean
# make conventions  scikit-learn's own checks of the private estimators, by its current version and the two before
# make adversary   neighbouring tables against private SQL, for longer than the tests do

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PARTS := pyproject.toml setup.py constraints.txt $(wildcard src/discreet/native/*.[ch])
JOBS ?= 2

.DELETE_ON_ERROR:
.PHONY: demo test adversary conventions check bench docs clean browser database java pango flower

demo: $(VENV)/.demo
	$(BIN)/discreet demo

test: $(VENV)/.dev browser database java pango flower
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests src/discreet --doctest-modules --ignore-glob='src/*_triton.py'

adversary: $(VENV)/.dev database java
	ADVERSARY_ROUNDS=20 $(BIN)/python -m pytest -n $(JOBS) -q tests/adversary

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir out/site
	$(BIN)/python -m pytest -n $(JOBS) -q tests/docs

# Flower pins versions that others here do not, so it has an environment of its own, which sees this one behind it.
flower: $(VENV)/.dev
	@test -e $(VENV)/flower/.done || { $(PYTHON) -m venv $(VENV)/flower \
	  && $(VENV)/flower/bin/python -m pip install --quiet --disable-pip-version-check 'flwr==1.41.0' \
	  && $(BIN)/python -c 'import site, pathlib; print(pathlib.Path("src").resolve(), *site.getsitepackages(), sep="\n")' \
	     > "$$(echo $(VENV)/flower/lib/python3*/site-packages)/zz_discreet.pth" && touch $(VENV)/flower/.done; } \
	  || echo "Flower could not be installed; the test of its cluster is left out."

# Peers live in environments of their own, so that none of them decides what discreet is installed with.
PEERS := $(VENV)/peers
RESULTS := bench/results

WITH_PEERS := $(foreach peer,opendp diffprivlib anonypy mbi dpmm interpret snsynth pureldp smartnoise pipelinedp opacus jax art sacro,$(PEERS)/$(peer)/.done)
OLDER := $(PEERS)/sklearn-1.7/.done $(PEERS)/sklearn-1.8/.done

conventions: $(VENV)/.dev $(OLDER)
	for python in $(PEERS)/sklearn-1.7/bin/python $(PEERS)/sklearn-1.8/bin/python $(BIN)/python; do \
	  $$python bench/conventions.py --out $(RESULTS)/conventions.json || exit 1; done

bench: $(VENV)/.dev $(WITH_PEERS) $(PEERS)/privacy-meter/.done $(PEERS)/smartnoise-sdk/.done
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/demo.py
	$(BIN)/python bench/accounting.py --out $(RESULTS)/accounting.json
	$(BIN)/python bench/accounting.py --near 1e-4 --out $(RESULTS)/accounting-near-1e-4.json
	$(BIN)/python bench/noise.py --opendp $(PEERS)/opendp/bin/python --out $(RESULTS)/noise.json
	$(BIN)/python bench/peers_audit.py --opendp $(PEERS)/opendp/bin/python --diffprivlib $(PEERS)/diffprivlib/bin/python \
	  --out $(RESULTS)/peers_audit.json
	$(BIN)/python bench/calibration.py --out $(RESULTS)/calibration.json
	$(BIN)/python bench/verdicts.py --out $(RESULTS)/verdicts.json
	$(BIN)/python bench/ledger.py --out $(RESULTS)/ledger.json
	$(BIN)/python bench/serve.py --out $(RESULTS)/serve.json
	$(BIN)/python bench/sql.py --opendp $(PEERS)/opendp/bin/python --smartnoise $(PEERS)/smartnoise/bin/python \
	  --pipeline-dp $(PEERS)/pipelinedp/bin/python --out $(RESULTS)/sql.json
	$(BIN)/python bench/sql_asked.py --smartnoise $(PEERS)/smartnoise-sdk --out $(RESULTS)/sql_asked.json
	if test -d ../shared/data; then $(BIN)/python bench/sql_accuracy.py --opendp $(PEERS)/opendp/bin/python \
	  --smartnoise $(PEERS)/smartnoise/bin/python --pipeline-dp $(PEERS)/pipelinedp/bin/python --out $(RESULTS)/sql_accuracy.json; fi
	if test -d ../shared/data; then for name in inversion extraction stealing property_share; do \
	  $(BIN)/python bench/$$name.py --data ../shared/data --out $(RESULTS)/$$name.json || exit 1; done; \
	  $(BIN)/python bench/instahide.py --data ../shared/data --out $(RESULTS)/encodings.json; fi
	$(BIN)/python bench/sgd.py --opacus $(PEERS)/opacus/bin/python --jax $(PEERS)/jax/bin/python --out $(RESULTS)/sgd.json
	$(BIN)/python bench/sgd_noise.py --out $(RESULTS)/sgd_noise.json
	$(BIN)/python bench/sgd_start.py --out $(RESULTS)/sgd_start.json
	$(BIN)/python bench/shadow.py --art $(PEERS)/art/bin/python --privacy-meter $(PEERS)/privacy-meter --out $(RESULTS)/shadow.json
	$(BIN)/python bench/query_synthesis.py --art $(PEERS)/art/bin/python --out $(RESULTS)/query_synthesis.json
	if test -d ../shared/data; then $(BIN)/python bench/membership.py --out $(RESULTS)/membership.json; \
	  $(BIN)/python bench/membership.py --case peers --sacro $(PEERS)/sacro/bin/python --art $(PEERS)/art/bin/python \
	    --targets 3 --shadows 64 --few 16 --out $(RESULTS)/membership.json; \
	  $(BIN)/python bench/membership.py --case defended --targets 5 --shadows 16 --out $(RESULTS)/membership.json; \
	  $(BIN)/python bench/membership.py --case published --out $(RESULTS)/membership.json; \
	  $(BIN)/python bench/text.py --out $(RESULTS)/text.json; fi
	$(BIN)/python bench/crypto.py $(if $(wildcard ../shared/data/mnist),--data ../shared/data) --out $(RESULTS)/crypto.json --plot docs/theory/lwe-noise.svg
	$(BIN)/python bench/local.py --pure-ldp $(PEERS)/pureldp/bin/python --out $(RESULTS)/local.json --plot docs/theory/local-error.svg
	$(BIN)/python bench/reconstruct.py --out $(RESULTS)/reconstruct.json
	$(BIN)/python bench/audit_training.py --part bugs,command --out $(RESULTS)/audit_training.json
	if test -d ../shared/data; then $(BIN)/python bench/audit_training.py --part models --out $(RESULTS)/audit_training.json; fi
	if test -d ../shared/data; then $(BIN)/python bench/link.py --out $(RESULTS)/link.json; \
	  $(BIN)/python bench/kanonymity.py --peer $(PEERS)/anonypy/bin/python --out $(RESULTS)/kanonymity.json; \
	  $(BIN)/python bench/estimators.py --diffprivlib $(PEERS)/diffprivlib/bin/python --dpebm $(PEERS)/interpret/bin/python \
	    --audit 20000 --out $(RESULTS)/estimators.json; \
	  $(BIN)/python bench/ensembles.py --diffprivlib $(PEERS)/diffprivlib/bin/python --dpebm $(PEERS)/interpret/bin/python \
	    --out $(RESULTS)/ensembles.json; \
	  $(BIN)/python bench/estimators.py --only search --seeds 5 --out $(RESULTS)/estimators.json; \
	  $(BIN)/python bench/synth.py --out $(RESULTS)/synth.json --plot docs/theory/synth-growth.svg; \
	  $(BIN)/python bench/synth.py --part published --out $(RESULTS)/synth_published_split.json; \
	  $(BIN)/python bench/synth.py --part tree --out $(RESULTS)/synth_tree.json; \
	  $(BIN)/python bench/synth.py --part aim --out $(RESULTS)/synth_aim.json; \
	  $(BIN)/python bench/synth_attacks.py --out $(RESULTS)/synth_attacks.json; fi

$(WITH_PEERS) $(OLDER): | $(BIN)/python
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(WANTED)
	@touch $@

$(PEERS)/privacy-meter/.done: | $(BIN)/python
	git clone --quiet https://github.com/privacytrustlab/ml_privacy_meter $(@D)
	git -C $(@D) checkout --quiet e384af8fd9319b8eeb1303aa82474df1441e3c59
	@touch $@

$(PEERS)/smartnoise-sdk/.done: | $(BIN)/python
	git clone --quiet https://github.com/opendp/smartnoise-sdk $(@D)
	git -C $(@D) checkout --quiet 81d1351b383b5d45b0818ae140a7291b4ce4a841
	@touch $@

$(PEERS)/opendp/.done: WANTED := 'opendp[polars]==0.16.0' numpy
$(PEERS)/diffprivlib/.done: WANTED := 'diffprivlib==0.6.6' 'scikit-learn<1.8'
$(PEERS)/sklearn-1.7/.done: WANTED := -e . 'scikit-learn==1.7.2'
$(PEERS)/sklearn-1.8/.done: WANTED := -e . 'scikit-learn==1.8.0'
$(PEERS)/interpret/.done: WANTED := 'interpret-core==0.7.8' scikit-learn pandas
$(PEERS)/pureldp/.done: WANTED := 'pure-ldp==1.2.0' scikit-learn matplotlib seaborn statsmodels 'xxhash==2.0.2'
$(PEERS)/smartnoise/.done: WANTED := 'smartnoise-sql==1.0.10' pyarrow
$(PEERS)/pipelinedp/.done: WANTED := 'pipeline-dp==0.3.1' python-dp dp-accounting pandas pyarrow
$(PEERS)/opacus/.done: WANTED := 'opacus==1.6.0' 'torch==2.13.0' numpy
$(PEERS)/jax/.done: WANTED := 'jax-privacy==2.0.0'
$(PEERS)/art/.done: WANTED := 'adversarial-robustness-toolbox==1.20.1' 'torch==2.13.0' packaging 'setuptools<80'
$(PEERS)/sacro/.done: WANTED := 'sacroml==2.0.1'
$(PEERS)/mbi/.done: WANTED := 'mbi==2.0.0' pandas
$(PEERS)/dpmm/.done: WANTED := 'dpmm==0.1.9'
$(PEERS)/snsynth/.done: WANTED := 'smartnoise-synth==1.0.8' 'torch==2.13.0'
$(PEERS)/anonypy/.done: WANTED := 'anonypy==0.2.1' 'pycanon==1.3.6'

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir out/site
	@echo "The documentation is in out/site/index.html"

clean:
	rm -rf $(VENV) demo out build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "discreet needs Python 3.11 or later; found " + sys.version.split()[0] + ". Say which one: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(PARTS) | $(BIN)/python
	$(PIP) -e '.[sql,torch,serve]'
	@touch $@

$(VENV)/.dev: $(PARTS) | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo

# Programs that some tests need and pip cannot bring. Without one its tests are skipped, and say so.
# $(call program,PACKAGE,how to see that it is there,TESTS)
define program
	@if $(2); then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing $(1) for the $(3) tests"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1); } >/dev/null \
	    || echo "$(1) could not be installed: the $(3) tests will be skipped."; \
	else echo "No $(1) here, and installing it needs root and apt-get: the $(3) tests will be skipped."; fi
endef

browser:
	$(call program,chromium,command -v chromium >/dev/null || command -v google-chrome >/dev/null,browser)

database:
	$(call program,postgresql,command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1,PostgreSQL)

java:
	$(call program,default-jre-headless,command -v java >/dev/null || [ -x "$$JAVA_HOME/bin/java" ],Spark)

pango:
	$(call program,libpango-1.0-0 libpangoft2-1.0-0,ldconfig -p 2>/dev/null | grep -q libpangoft2-1.0,PDF)
