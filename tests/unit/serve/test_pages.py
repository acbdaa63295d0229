"""What the pages do: budgets, questions, answers that become releases, and who sees what of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from discreet.core import Claim, Evidence, Game, Laplace, Release, record, user
from discreet.errors import InvalidValue
from discreet.serve import AppState
from discreet.serve.settings import Source
from webapp import COUNT, UNIT, Served, model, serving

QUESTION = {"source": "hospital", "sql": COUNT, "epsilon": "0.5"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made


def test_an_explanation_spends_nothing(served: Served) -> None:
    found = served.post("/console/explain.json", "ann", QUESTION).json()["cost"]
    assert found["epsilon"] == pytest.approx(0.5)
    assert found["fits"] is True
    assert found["account"] == "ann"
    assert "within" in found["errors"]["n"]
    assert 0 < found["left_after"] < found["left_before"] <= served.state.ledger.balance("hospital").epsilon
    assert served.state.ledger.balance("hospital").spent.epsilon == 0


def test_an_answer_is_charged_to_the_account_and_kept(served: Served) -> None:
    found = served.ask().json()["answer"]
    assert found["columns"]["ward"] == ["A", "B", "C"]
    assert all(low <= n <= high for n, low, high in zip(*(found["columns"][name] for name in ("n", "n_low", "n_high"))))
    assert served.state.ledger.balance("hospital", "ann").spent.epsilon > 0
    assert served.state.ledger.balance("hospital", "default").spent.epsilon == 0
    kept: Release[dict[str, object]] = Release.load(served.state.store.folder / found["release"] / "release.json")
    assert (kept.entry, kept.source) == (found["entry"], "hospital")
    assert kept.value["columns"] == found["columns"]
    assert kept.facts["question"]["sql"] == COUNT
    assert (served.state.store.folder / found["release"] / "table.parquet").is_file()
    assert served.state.ledger.verify()


def test_the_same_question_is_free_and_the_same_release(served: Served) -> None:
    one, two = served.ask().json()["answer"], served.ask().json()["answer"]
    assert one["columns"] == two["columns"]
    assert one["release"] == two["release"]
    assert one["left"] == two["left"]


def test_an_answer_that_was_paid_for_and_not_kept_is_kept_when_asked_again(served: Served) -> None:
    import shutil

    found = served.ask().json()["answer"]
    shutil.rmtree(served.state.store.folder / found["release"])  # as if the server had stopped before it was written
    again = served.ask().json()["answer"]
    assert again["columns"] == found["columns"]
    assert served.get(f"/releases/{again['release']}", "olga").status_code == 200


def test_an_account_spends_its_share_and_no_more(served: Served) -> None:
    found = served.ask(epsilon="3")  # of 4, of which half is hers
    assert found.status_code == 409
    assert "account ann" in found.json()["error"]
    assert served.ask(epsilon="2").status_code == 200
    found = served.ask(sql="SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
    assert found.status_code == 409
    cost = served.post("/console/explain.json", "ann", {**QUESTION, "epsilon": "0.1"}).json()["cost"]
    assert cost["fits"] is False
    assert "account ann" in cost["refusal"]
    assert served.ask("ada", "SELECT COUNT(*) AS n FROM visits", "0.1").status_code == 200  # the owner's part is untouched


def test_who_has_no_share_asks_nothing(served: Served) -> None:
    found = served.ask("bob")
    assert found.status_code == 400
    assert "may not ask" in found.json()["error"]
    assert served.get("/console.json", "bob").json()["sources"] == []
    assert served.ask("ann", source="elsewhere").status_code == 400
    assert served.post("/sources/hospital/share", "ada", {"account": "bob", "percent": "10"}).status_code == 303
    assert served.ask("bob", epsilon="0.1").status_code == 200


@pytest.mark.parametrize(
    ("sql", "why"),
    [("SELECT * FROM visits", "private SQL"), ("SELECT patient_id FROM visits", ""), ("DROP TABLE visits", ""),
     ("SELECT COUNT(*) AS n FROM read_csv('/etc/passwd')", ""), ("", ""), ("SELECT AVG(patient_id) FROM visits", "bounds")],
)  # fmt: skip
def test_a_refused_question_says_why_and_costs_nothing(served: Served, sql: str, why: str) -> None:
    found = served.ask(sql=sql)
    assert found.status_code == 400
    assert why in found.json()["error"]
    assert "root:" not in found.text
    page = served.post("/console/ask", "ann", {**QUESTION, "sql": sql})
    assert page.status_code == 200
    assert "Not answered" in page.text
    assert served.state.ledger.balance("hospital").spent.epsilon == 0
    assert served.state.users.log()[0]["what"] == "refused"


@pytest.mark.parametrize("wrong", [{"epsilon": ""}, {"epsilon": "x"}, {"epsilon": "-1"}, {"epsilon": "nan"}, {"epsilon": "inf"},
                                   {"delta": "2"}, {"groups": "1.5"}, {"groups": "1e400"}, {"sql": "x" * 10_001}])  # fmt: skip
def test_numbers_that_are_none_are_refused(served: Served, wrong: dict[str, str]) -> None:
    for path in ("/console/explain.json", "/console/ask.json"):
        assert served.post(path, "ann", {**QUESTION, **wrong}).status_code == 400
    assert served.state.ledger.balance("hospital").spent.epsilon == 0


def test_htmx_gets_a_part_and_a_browser_the_page(served: Served) -> None:
    part = served.post("/console/explain", "ann", QUESTION, headers={"hx-request": "true"}).text
    page = served.post("/console/explain", "ann", QUESTION).text
    assert "<html" not in part
    assert "<html" in page
    assert "Spend it and answer" in part
    assert "Spend it and answer" in page
    answer = served.post("/console/ask", "ann", QUESTION, headers={"hx-request": "true"}).text
    assert 'class="dot"' in answer
    assert 'hx-swap-oob="true"' in answer


def test_the_owner_opens_raises_and_shares_with_a_reason(tmp_path: Path) -> None:
    with serving(tmp_path, ledger=False) as served:
        assert served.get("/sources.json", "ada").json()["not_open"] == ["hospital"]
        opened = {"source": "hospital", "epsilon": "2", "delta": "1e-6"}
        assert served.post("/sources", "ada", opened).status_code == 400
        assert served.post("/sources", "ada", {**opened, "reason": "the study"}).status_code == 303
        found = served.get("/sources/hospital.json", "ada").json()
        assert found["unit"].startswith("one user (at most 4 rows")
        raised = {"epsilon": "3", "delta": "1e-6", "reason": "more wards"}
        assert served.post("/sources/hospital/raise", "ada", raised).status_code == 303
        assert served.post("/sources/hospital/raise.json", "ada", {**raised, "epsilon": "1"}).status_code == 400
        last = served.state.ledger.history("hospital")[-1]
        assert (last.body["by"], last.body["reason"]) == ("ada", "more wards")
        assert [note["what"] for note in served.state.users.log()[:2]] == ["raised", "opened"]
        users = {"source": "clinic", "epsilon": "1", "delta": "1e-6", "reason": "x", "unit": "user:id", "rows": "any"}
        assert served.post("/sources", "ada", users).status_code == 303
        assert served.get("/sources/clinic.json", "olga").json()["configured"] is False


def test_analysts_see_their_own_account_alone(served: Served) -> None:
    found = served.get("/sources/hospital.json", "ann").json()
    assert [each["account"] for each in found["accounts"]] == ["ann"]
    assert {each["account"] for each in found["entries"]} <= {None, "ann"}
    everyone = served.get("/sources/hospital.json", "olga").json()
    assert {each["account"] for each in everyone["accounts"]} == {"ann", "default"}


def test_what_was_measured_on_the_rows_is_not_for_analysts(served: Served) -> None:
    """Evidence and most exposed records are made from the rows without noise."""
    officer, analyst = (served.get("/releases/model", who).text for who in ("olga", "ann"))
    assert "loss" in officer
    assert "loss" not in analyst
    cards = served.get("/releases.json", "ann").json()["releases"]
    assert cards[0]["attacks"] == []
    told = json.dumps(served.get("/releases/model.json", "ann").json())
    assert "loss" not in told
    assert "0.8642" not in told
    assert "0.8642" in json.dumps(served.get("/releases/model.json", "olga").json())
    assert "is left out here" in analyst
    assert "is left out here" not in officer
    assert served.get("/releases/model/document", "ann").status_code == 403
    raw = served.get("/releases/model/document", "olga")
    assert len(raw.json()["evidence"][0]["score"]) == 400
    assert raw.headers["content-disposition"].startswith("attachment")


def test_releases_are_filtered(served: Served) -> None:
    served.state.store.save("other", model("Length of stay"))
    names = lambda query: [each["name"] for each in served.get(f"/releases.json?{query}", "olga").json()["releases"]]  # noqa: E731
    assert names("filter=stay") == ["other"]
    assert sorted(names("filter=loss")) == ["model", "other"]
    assert names("filter=nothing+like+it") == []
    assert names("source=elsewhere") == []
    part = served.get("/releases?filter=stay", "olga", headers={"hx-request": "true"}).text
    assert "Length of stay" in part
    assert "<html" not in part


def test_a_damaged_release_does_not_hide_the_others(served: Served) -> None:
    (served.state.store.folder / "broken.json").write_text("{")
    found = {each["name"]: each["fault"] for each in served.get("/releases.json", "olga").json()["releases"]}
    assert found["model"] is None
    assert "not valid JSON" in found["broken"]
    assert served.get("/releases/broken", "olga").status_code == 404


def test_people_come_and_go(served: Served) -> None:
    found = served.post("/users.json", "ada", {"name": "carl", "role": "analyst"}).json()["link"]
    assert served.client.get(found["path"]).status_code == 200
    assert served.post("/users/carl.json", "ada", {"role": "officer", "account": "team"}).json()["account"] == "team"
    assert served.post("/users/ann/turn", "ada").status_code == 303
    assert served.get("/console", "ann").headers["location"] == "/login?next=%2Fconsole"
    assert served.post("/users.json", "ada", {"name": "dora", "role": "analyst", "account": "default"}).status_code == 400
    assert served.post("/users.json", "ada", {"name": "dora", "role": "king"}).status_code == 400
    assert served.post("/users/nobody/turn.json", "ada").status_code == 400


def test_the_log_is_read_in_pages(served: Served) -> None:
    for number in range(150):
        served.state.users.note("ann", "asked", f"question {number}")
    first = served.get("/log.json", "olga").json()
    assert len(first["notes"]) == 100
    second = served.get(f"/log.json?before={first['older']}&who=ann", "olga").json()
    assert len(second["notes"]) == 50
    assert second["older"] is None


def test_a_budget_for_another_unit_stops_the_start(tmp_path: Path) -> None:
    from webapp import settings

    with serving(tmp_path) as served:
        assert served.get("/health").text == "ok\n"
    wanted = settings(tmp_path, sources={"hospital": Source("hospital", "x.parquet", user("patient_id", rows=9))})
    for _ in range(2):  # what was refused holds no lock
        with pytest.raises(InvalidValue, match="The ledger has a budget of hospital for one user"):
            AppState(wanted)


def test_data_that_is_gone_is_told_to_owners_only(tmp_path: Path) -> None:
    from webapp import UNIT

    with serving(tmp_path, sources={"hospital": Source("hospital", str(tmp_path / "gone.parquet"), UNIT)}) as served:
        assert "gone.parquet" not in served.ask("ann").text
        assert "an owner sees why" in served.ask("ann").text
        assert "gone.parquet" in served.ask("ada").text
        assert served.get("/console", "ann").status_code == 200
        assert served.state.ledger.balance("hospital").spent.epsilon == 0


def test_the_policy_says_which_releases_pass(tmp_path: Path) -> None:
    policy = tmp_path / "privacy.toml"
    with serving(tmp_path, policy=policy) as served:
        served.state.store.save("bare", model("Bare", evidence=False))
        policy.write_text('[[rule]]\non = "release"\nrequire = ["evidence"]\n')
        found = {each["name"]: each["outcome"] for each in served.get("/policy.json", "olga").json()["releases"]}
        assert found == {"model": "holds", "bare": "failed"}
        assert "Bare" in served.get("/policy", "olga").text
        policy.write_text('[[rule]]\non = "claim"\nepsilon = { at_delta = 1e-6, max = 0.1 }\n')
        found = {each["name"]: each["outcome"] for each in served.get("/policy.json", "olga").json()["releases"]}
        assert set(found.values()) == {"failed"}
        policy.write_text("[[rule]]\non = 'nothing'\n")
        assert served.get("/policy.json", "olga").json()["fault"]


def test_a_release_that_borrowed_its_entry_is_told_of_first(tmp_path: Path) -> None:
    policy = tmp_path / "privacy.toml"
    policy.write_text('[[rule]]\non = "release"\nrequire = ["claim"]\n')
    with serving(tmp_path, policy=policy) as served:
        claims = (Claim(game=Game(UNIT, {"answers"}), event=Laplace(5.0)),)
        with served.state.ledger.reserve("hospital", claims, account="ann") as entry:
            paid = replace(model("Paid", evidence=False), claims=claims, entry=entry)
        served.state.store.save("paid", paid)
        served.state.store.save("borrowed", replace(paid, source="visits"))
        served.state.store.save("unknown", replace(paid, source="visits", entry="99-0123456789abcdef"))
        found = {each["name"]: each for each in served.get("/policy.json", "olga").json()["releases"]}
        assert {name: each["outcome"] for name, each in found.items()} == {
            "model": "holds", "paid": "holds", "borrowed": "failed", "unknown": "failed"
        }  # fmt: skip
        assert found["borrowed"]["findings"][0]["rule"] == "as-it-says"
        for name in ("borrowed", "unknown"):
            assert served.get(f"/releases/{name}.json", "olga").json()["verdict"]["status"] == "contradicted"
            assert "Do not rely on this release" in served.get(f"/releases/{name}", "olga").text
            assert "Do not rely on this release" in served.get(f"/releases/{name}/export/html", "olga").text
        assert "Do not rely" not in served.get("/releases/paid", "olga").text


def test_a_table_beside_an_answer_is_shown_and_no_other(served: Served) -> None:
    import shutil

    import pyarrow as pa

    found = served.ask().json()["answer"]
    folder = served.state.store.folder
    kept: Release[object] = Release.load(folder / found["release"] / "release.json")
    table = pa.table({"ward": ["A"], "n": [9753.0], "n_low": [10.0], "n_high": [15.0]})
    beside = kept.map(lambda _: table)
    served.state.store.save("beside", beside, table)
    assert "9,753" in served.get("/releases/beside", "ann").text
    assert "Ask again" in served.get("/releases/beside", "ann").text
    shutil.copytree(folder / "beside", folder / "raw")
    release = model("Rows", evidence=False).map(lambda _: table)  # no claim about answers: whatever lies beside is not shown
    release.save(folder / "raw" / "release.json")
    assert "9,753" not in served.get("/releases/raw", "ada").text


def test_a_report_follows_the_ledger(served: Served) -> None:
    """Reports are remembered until their release or the ledger changes."""
    first = served.get("/releases/model", "olga").text
    assert served.get("/releases/model", "olga").text == first
    served.ask()
    assert served.get("/releases/model", "olga").text != first


def test_an_expired_session_leads_to_the_login(served: Served) -> None:
    served.state.users.leave(served.sessions["ann"].key)
    found = served.post("/console/explain", "ann", QUESTION, headers={"hx-request": "true"})
    assert (found.status_code, found.headers["hx-redirect"].partition("%3F")[0]) == (401, "/login?next=%2Fconsole")
    assert served.post("/console/explain.json", "ann", QUESTION).status_code == 401


def test_officers_export_reports(served: Served) -> None:
    served.ask()
    one = served.get("/releases/model/export/html", "olga")
    assert one.headers["content-disposition"] == "attachment; filename*=UTF-8''model.html"
    assert "Readmissions" in one.text
    assert "<script" not in one.text
    annex = served.get("/releases/model/export/html?annex=yes", "olga").text
    assert len(annex) > len(one.text)
    both = served.get("/sources/hospital/export/md", "olga").text
    assert "All releases of hospital" in both
    assert "Readmissions" in both
    assert "SELECT ward" in both
    assert served.get("/releases/model/export/exe", "olga").status_code == 404
    assert served.get("/sources/elsewhere/export/md", "olga").status_code == 404
    assert [note["what"] for note in served.state.users.log()[:3]] == ["exported"] * 3


def test_a_ledger_that_cannot_be_used_is_told_to_owners_only(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.errors import LedgerError

    def broken(*_: object, **__: object) -> object:
        raise LedgerError("/srv/secret/ledger.db cannot be used: the disk is full.")

    monkeypatch.setattr(served.state.ledger, "reserve", broken)
    for who, told in (("ann", False), ("ada", True)):
        found = served.ask(who)
        assert found.status_code == 503
        assert ("/srv/secret" in found.text) is told


def test_names_of_any_alphabet_lead_somewhere(served: Served) -> None:
    opened = {"source": "больница & Co", "epsilon": "1", "delta": "1e-6", "reason": "x", "unit": "record"}
    for head in ({}, {"hx-request": "true"}):
        found = served.post("/sources", "ada", opened, headers=head)
        place = found.headers["hx-redirect" if head else "location"]
        assert served.get(place, "ada").status_code == 200
    assert "больница &amp; Co" in served.get("/sources", "ada").text


def test_an_officer_first_sees_which_release_is_worst_how_bad_and_what_to_do(served: Served) -> None:
    """The word and the number of the list are those of the report; analysts, who see no evidence, are told of neither."""
    inside = np.arange(4000) % 2 == 0
    seen = Evidence(game=Game(record(), {"scores"}), attack="peek", score=inside + 0.0, inside=inside, run=np.zeros(4000, int),
                    design="post_hoc")  # fmt: skip
    leaky = Release(value=1, source="hospital", claims=(), evidence=(seen,), facts={"title": "Leaky model"})
    served.state.store.save("leaky", leaky)
    assert served.get("/", "olga").headers["location"] == "/releases"
    listed = served.get("/releases.json", "olga").json()
    told = served.get("/releases/leaky.json", "olga").json()
    assert listed["worst"]["name"] == "leaky"
    assert listed["worst"]["status"] == told["verdict"]["status"] == "leaks"
    assert listed["worst"]["number"] == told["decision"]["number"]
    assert listed["worst"]["action"] == told["decision"]["actions"][0]
    for each in listed["releases"]:
        assert each["verdict"] == served.get(f"/releases/{each['name']}.json", "olga").json()["verdict"]["status"]
    page = served.get("/releases", "olga").text
    assert page.index("Leaky model") < page.index(told["decision"]["number"]) < page.index("<table")
    hidden = served.get("/releases.json", "ann").json()
    assert (hidden["worst"], {each["verdict"] for each in hidden["releases"]}) == (None, {None})
    assert "Do not give" not in served.get("/releases", "ann").text
