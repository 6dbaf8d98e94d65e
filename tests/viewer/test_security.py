"""Who may ask the viewer, and what its answers let a browser do."""

from __future__ import annotations

import pytest
from tests.viewer.runs import small_rows, write
from tests.viewer.serving import ask, served

from kofn.errors import InputError
from kofn.viewer.server import check_options

TOKEN = "correct-horse-battery-staple"  # noqa: S105 - of this test


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write(root / "one", small_rows(3))
    return root


@pytest.fixture(scope="module")
def base(folder):
    with served(folder) as address:
        yield address


@pytest.fixture(scope="module")
def guarded(folder):
    with served(folder, token=TOKEN) as address:
        yield address


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_name_that_was_made_to_lead_here_is_refused(base, host):
    answer = ask(base, "/", Host=host)
    assert answer.status == 421
    assert b"one" not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1:9999", "localhost", "LOCALHOST:1", "[::1]:80"])
def test_the_names_of_this_machine_are_answered_also_through_a_forwarded_port(base, host):
    assert ask(base, "/", Host=host).status == 200


@pytest.mark.parametrize(("site", "mode", "status"), [
    ("cross-site", "no-cors", 403), ("cross-site", "navigate", 200), ("same-site", "cors", 403),
    ("same-origin", "cors", 200),
])  # fmt: skip
def test_pages_of_other_sites_get_nothing_to_embed(base, site, mode, status):
    assert ask(base, "/", Sec_Fetch_Site=site, Sec_Fetch_Mode=mode).status == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
def test_what_changes_something_must_come_from_our_own_pages(base, origin):
    assert ask(base, "/run/one/-/labels", "POST", b"{}", Origin=origin).status == 403


def test_a_post_without_an_origin_and_other_methods_are_refused(base):
    assert ask(base, "/run/one/-/labels", "POST", b"{}").status == 403
    assert {ask(base, "/", method).status for method in ("PUT", "DELETE", "OPTIONS", "TRACE")} == {403}


def test_every_answer_forbids_scripts_and_frames_of_others(base):
    for path in ("/", "/run/one", "/nothing", "/static/x/page.js", "/run/none"):
        headers = ask(base, path).headers
        assert "script-src 'self';" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_pages_hold_no_script_of_their_own_and_name_no_other_host(base):
    for path in ("/", "/run/one", "/run/one/-/case?id=q00"):
        text = ask(base, path).text
        for part in text.split("<script")[1:]:
            assert part.startswith((' src="/static/', ' type="application/json"', ' type="text/plain"')), part[:80]
        assert "http://" not in text.replace("http://www.w3.org", "")
        assert "https://" not in text.replace("https://vega.github.io/schema", "")


def test_a_token_is_asked_for_and_becomes_a_cookie(guarded):
    assert ask(guarded, "/").status == 401
    assert ask(guarded, "/?token=wrong-wrong-wrong-wrong").status == 401
    answer = ask(guarded, f"/run/one?show=tied&token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "/run/one?show=tied")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert ask(guarded, "/run/one", Cookie=cookie.partition(";")[0]).status == 200
    assert ask(guarded, "/", Authorization=f"Bearer {TOKEN}").status == 200
    assert ask(guarded, "/static/x/page.js").status == 401


def test_the_way_back_after_a_token_leads_nowhere_else(guarded):
    answer = ask(guarded, f"//evil.example/?token={TOKEN}")
    assert answer.headers["location"] == "/evil.example/"


def test_a_viewer_that_others_can_reach_needs_a_token(tmp_path):
    with pytest.raises(InputError, match=r"--host 0\.0\.0\.0: others could read every output: give --token too"):
        check_options(tmp_path, "0.0.0.0", None)  # noqa: S104 - what is refused
    with pytest.raises(InputError, match="5 characters can be guessed"):
        check_options(tmp_path, "0.0.0.0", "short")  # noqa: S104
    check_options(tmp_path, "0.0.0.0", TOKEN)  # noqa: S104
    with pytest.raises(InputError, match="no such directory"):
        check_options(tmp_path / "none", "127.0.0.1", None)
