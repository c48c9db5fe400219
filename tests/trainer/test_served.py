"""Generation by servers: fan-out, and every fault that a run must survive or end well from."""

import math
import socket
import threading
import time
from contextlib import closing
from functools import partial

import engines
import pytest
import serving
import torch

from trainer.engine import open_engine, server
from trainer.engine.base import Score, generate
from trainer.engine.faults import Fault
from trainer.engine.local import LocalEngine
from trainer.engine.messages import GENERATE
from trainer.engine.wire import Wire, split_address
from trainer.errors import ConfigError, EngineError

DEADLINE = 0.6
load = partial(engines.load, keep_cache=True)


@pytest.fixture
def servers(directory):
    two = [serving.Here(directory), serving.Here(directory)]
    yield two
    for one in two:
        one.close()


@pytest.fixture
def opened(directory):
    every = []

    def open_with(*servers, deadline_s=DEADLINE, **options):
        addresses = [server.address for server in servers]
        engine = open_engine(
            "served", directory, addresses=addresses, deadline_s=deadline_s, **options
        )
        every.append(engine)
        return engine

    yield open_with
    for engine in every:
        engine.close()
        engine.close()


def ask(n, length=20):
    return [engines.ask(p, length, seed=i) for i, p in enumerate(engines.prompts(n))]


def local_tokens(model, directory, requests):
    with closing(LocalEngine.from_directory(directory)) as engine:
        load(engine, model)
        return [completion.ids for completion in generate(engine, requests)]


def score(model):
    """What the learner would give a fixed sequence."""
    ids = tuple((5 * i + 2) % 23 for i in range(40))
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    logp = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return Score(ids, tuple(logp.tolist()), 1e-3)


def finish(engine, seconds=20.0):
    """Everything that is running."""
    done, until = [], time.monotonic() + seconds
    while engine.running:
        assert time.monotonic() < until, "the engine does not end"
        done += engine.collect(0.2)
    return sorted(done, key=lambda completion: completion.id)


def wait_for_notice(engine, text, seconds=20.0):
    seen, until = [], time.monotonic() + seconds
    while not any(text in line for line in seen):
        assert time.monotonic() < until, seen
        engine.collect(0.0)
        time.sleep(0.02)
        seen += engine.notices()
    return seen


# ---------------------------------------------------------------------- several servers


def test_requests_spread_evenly_and_tokens_are_those_of_one_engine(
    servers, opened, model_b, directory
):
    engine = opened(*servers, deadline_s=60.0)
    load(engine, model_b)
    greetings = [server.faults.calls[GENERATE] for server in servers]
    requests = ask(40)
    completions = generate(engine, requests)
    assert [c.ids for c in completions] == local_tokens(model_b, directory, requests)
    counts = [s.faults.calls[GENERATE] - g for s, g in zip(servers, greetings, strict=True)]
    assert sum(counts) == 40
    assert min(counts) >= 15
    assert engine.notices() == []


def test_more_requests_than_slots_wait_here(servers, opened):
    engine = opened(*servers, slots=3, deadline_s=60.0)
    engine.submit(ask(20, 60))
    assert [len(s.tickets) for s in engine._servers] == [3, 3]
    assert len(finish(engine)) == 20


def test_the_engine_generates_while_nobody_collects(servers, opened):
    engine = opened(*servers, deadline_s=60.0)
    engine.submit(ask(10))
    for _ in range(200):
        if not engine._traffic.outstanding:
            break
        time.sleep(0.02)
    assert len(engine.collect(0.0)) == 10


def test_the_file_holds_the_tied_head_and_goes_when_the_engine_does(
    servers, opened, model_b, tmp_path
):
    from safetensors import safe_open

    engine = opened(*servers, folder=str(tmp_path))
    for _ in range(2):
        load(engine, model_b)
    [folder] = tmp_path.iterdir()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert "lm_head.weight" in file.keys()  # noqa: SIM118 (no container)
    engine.close()
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- faults of the only server

ROUTES = {
    "generation": GENERATE,
    "pause": "/pause",
    "update": "/collective_rpc",
    "update, label": "/update_weight_version",
    "resume": "/resume",
    "parity": GENERATE,
}


@pytest.mark.parametrize("kind", ["hang", "500"])
@pytest.mark.parametrize("phase", ROUTES)
def test_the_only_servers_fault_ends_the_run_within_the_deadline_with_its_phase(
    servers, opened, model_a, model_b, phase, kind
):
    [one, _] = servers
    engine = opened(one)
    engine.submit([])
    one.faults.add(Fault(ROUTES[phase], kind))
    start = time.monotonic()
    name = phase.split(",")[0]

    def step():
        if phase == "parity":
            engine.verify(lambda: score(model_a))
        elif phase != "generation":
            load(engine, model_b)
        engine.submit(ask(2))
        finish(engine)

    with pytest.raises(EngineError, match=rf"^{name}: {one.address}: .*resume the run"):
        step()
    # the phase itself, the wait for a server to come back, and one more try of it
    assert time.monotonic() - start < 4 * DEADLINE + 4


@pytest.mark.parametrize("kind", ["hang", "500"])
@pytest.mark.parametrize("phase", ROUTES)
def test_with_another_server_the_run_goes_on_and_says_so(
    servers, opened, model_a, model_b, directory, phase, kind
):
    bad, good = servers
    engine = opened(*servers)
    bad.faults.add(Fault(ROUTES[phase], kind))
    load(engine, model_b)
    engine.verify(lambda: score(model_b))
    requests = ask(30)
    engine.submit(requests)
    completions = finish(engine)
    assert [c.ids for c in completions] == local_tokens(model_b, directory, requests)
    assert {span.version for c in completions for span in c.spans} == {1}
    notices = "\n".join(engine.notices())
    assert bad.address in notices
    assert f"{good.address}: " not in notices
    assert "1 of 2 servers" in notices


def test_a_server_whose_fault_passes_is_taken_back_with_the_weights_of_now(
    servers, opened, model_a, model_b
):
    bad, good = servers
    engine = opened(*servers)
    load(engine, model_a)
    bad.faults.add(Fault("/collective_rpc", "500", times=1))
    load(engine, model_b)
    notices = wait_for_notice(engine, f"{bad.address} is back with the weights of version 2")
    assert "500" in notices[0]
    good.faults.add(Fault(GENERATE, "hang"))  # so that all answers are the other's
    engine.submit(ask(6))
    assert all(c.spans[0].version == 2 for c in finish(engine))
    engine.verify(lambda: score(model_b))


# ---------------------------------------------------------------------- requests


def test_a_request_that_is_never_answered_is_drawn_again(servers, opened, directory, model_a):
    engine = opened(*servers)
    servers[0].faults.add(Fault(GENERATE, "hang", times=1))
    requests = ask(20)
    engine.submit(requests)
    completions = finish(engine)
    assert [c.ids for c in completions] == local_tokens(model_a, directory, requests)
    assert any("redrawn" in line or "drawn again" in line for line in engine.notices())


def test_an_answer_without_its_tokens_is_no_answer(servers, opened, directory, model_a):
    engine = opened(*servers)
    servers[0].faults.add(Fault(GENERATE, "garble", times=2))
    requests = ask(20)
    engine.submit(requests)
    assert [c.ids for c in finish(engine)] == local_tokens(model_a, directory, requests)


def test_a_request_that_fails_everywhere_comes_back_as_an_error(servers, opened):
    engine = opened(*servers)
    [poison] = ask(1)
    for one in servers:  # each strikes twice, which costs it nothing more
        one.faults.add(Fault(GENERATE, "500", times=2))
    engine.submit([poison])
    [completion] = finish(engine)
    assert completion.finish_reason == "error"
    assert "4 tries" in completion.error
    assert all(c.finish_reason == "length" for c in generate(engine, ask(10)))


def test_log_probabilities_that_are_no_numbers_arrive_as_such(servers, opened):
    engine = opened(servers[0])
    servers[0].faults.add(Fault(GENERATE, "nan", times=1))
    [completion] = generate(engine, ask(1))
    assert all(map(math.isnan, completion.logprobs))
    [notice] = engine.notices()
    assert f"{servers[0].address}: log-probabilities that are no numbers" in notice
    [completion] = generate(engine, ask(1))
    assert all(map(math.isfinite, completion.logprobs))


def test_a_request_that_no_server_would_take_is_an_error_at_once(servers, opened, monkeypatch):
    engine = opened(*servers)
    monkeypatch.setattr("trainer.engine.messages.KNOWN", ("max_tokens",))
    engine.submit(ask(1))
    with pytest.raises(EngineError, match=r"HTTP status 400 .sampling parameter .* is not served"):
        finish(engine)


# ---------------------------------------------------------------------- weights


def test_weights_that_did_not_arrive_are_sent_again(servers, opened, model_b, directory):
    engine = opened(*servers)
    servers[0].faults.add(Fault("/collective_rpc", "stale", times=1))
    load(engine, model_b)
    engine.verify(lambda: score(model_b))
    notices = wait_for_notice(engine, "is back")
    assert "did not arrive whole" in notices[0]
    requests = ask(20)
    engine.submit(requests)
    assert [c.ids for c in finish(engine)] == local_tokens(model_b, directory, requests)


def test_a_server_that_never_takes_the_weights_is_barred(servers, opened, model_b, directory):
    engine = opened(*servers)
    servers[0].faults.add(Fault("/collective_rpc", "stale"))
    load(engine, model_b)
    engine.verify(lambda: score(model_b))
    requests = ask(20)
    engine.submit(requests)
    assert [c.ids for c in finish(engine)] == local_tokens(model_b, directory, requests)
    assert [s.barred for s in engine._servers] == [True, False]


def test_when_no_server_takes_the_weights_the_run_ends_at_once(servers, opened, model_b):
    engine = opened(*servers, deadline_s=30.0)
    for one in servers:
        one.faults.add(Fault("/collective_rpc", "stale"))
    load(engine, model_b)
    start = time.monotonic()
    with pytest.raises(EngineError, match=r"^parity: .* differs from the learner by .* no server"):
        engine.verify(lambda: score(model_b))
    assert time.monotonic() - start < 15


def test_weights_of_another_run_are_found_out_by_their_label(servers, opened, model_a, model_b):
    engine = opened(servers[0])
    load(engine, model_b)
    other = opened(servers[0])  # takes the server away
    load(other, model_a)
    engine.submit(ask(3))
    completions = finish(engine)
    assert [c.spans[0].version for c in completions] == [1, 1, 1]
    assert any("another run uses it" in line for line in engine.notices())
    engine.verify(lambda: score(model_b))


# ---------------------------------------------------------------------- start


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_error(directory, *addresses, **options):
    with pytest.raises(EngineError) as caught:
        open_engine("served", directory, addresses=addresses, deadline_s=DEADLINE, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_address_that_refuses(directory, servers):
    address = f"127.0.0.1:{free_port()}"
    message = start_error(directory, servers[0].address, address)
    assert message.startswith(f"start: {address}: the connection is refused")
    assert "train-rl serve MODEL" in message


def test_a_server_that_hangs_at_the_start(directory, servers):
    servers[0].faults.add(Fault("/version", "hang"))
    assert "no answer in 0.6 s" in start_error(directory, servers[0].address)


def test_a_server_of_another_model(directory, random_model, tmp_path):
    random_model("qwen3", seed=1).save_pretrained(tmp_path)
    with closing(serving.Here(tmp_path)) as other:
        message = start_error(directory, other.address)
    assert "serves another model" in message
    assert str(tmp_path) in message


def as_vllm(monkeypatch, version="0.32.0"):
    """Make our servers say that they are vLLM, which does not tell shapes."""
    models = server.GET["/v1/models"]

    def card(*args):
        [model] = models(*args)["data"]
        del model["shapes"]
        return {"data": [{**model, "owned_by": "vllm"}]}

    monkeypatch.setitem(server.GET, "/v1/models", card)
    monkeypatch.setitem(server.GET, "/version", lambda *args: {"version": version})


def test_a_vllm_whose_vocabulary_is_smaller(directory, random_model, tmp_path, monkeypatch):
    random_model(seed=1, vocab_size=20).save_pretrained(tmp_path)
    as_vllm(monkeypatch)
    with closing(serving.Here(tmp_path)) as other:
        message = start_error(directory, other.address)
    assert "another model" in message
    assert "Token 22 is refused" in message


def test_a_vllm_that_is_too_old(directory, servers, monkeypatch):
    as_vllm(monkeypatch, "0.31.2")
    message = start_error(directory, servers[0].address)
    assert "vLLM 0.31.2 is too old; install 0.32 or newer" in message


def test_a_vllm_without_the_routes_that_update(directory, servers, monkeypatch):
    as_vllm(monkeypatch)
    monkeypatch.delitem(server.GET, "/is_paused")
    assert "VLLM_SERVER_DEV_MODE=1" in start_error(directory, servers[0].address)


def test_a_vllm_whose_log_probabilities_are_raw(directory, servers, monkeypatch):
    as_vllm(monkeypatch)
    real = server.POST[GENERATE]

    def raw(*args):
        answer = real(*args)
        answer["choices"][0]["logprobs"]["content"][0]["logprob"] = -0.7
        return answer

    monkeypatch.setitem(server.POST, GENERATE, raw)
    message = start_error(directory, servers[0].address)
    assert "--logprobs-mode processed_logprobs" in message


def test_servers_of_different_versions(directory, servers, monkeypatch):
    as_vllm(monkeypatch)
    versions = {servers[0].address: "0.32.0", servers[1].address: "0.33.0"}
    monkeypatch.setitem(
        server.GET, "/version", lambda one, *args: {"version": versions[one.address]}
    )
    message = start_error(directory, *versions)
    assert "differ in software" in message
    assert "vllm 0.33.0" in message


def test_nccl_without_vllm_and_an_unknown_transfer(directory, servers):
    assert "set engine.transfer to file" in start_error(
        directory, servers[0].address, transfer="nccl"
    )
    assert "choose file, nccl or ipc" in start_error(directory, servers[0].address, transfer="rsh")


@pytest.mark.parametrize("address", ["node7", "node7:", ":80", "node7:99999", "a/b:80", "x:8o"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigError, match="write host:port"):
        split_address(address)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the model directory"),
        (["DIR", "--prot", "1"], "unknown option --prot; there are --host"),
        (["DIR", "--port"], "--port needs a value"),
        (["DIR", "--port", "high"], "--port = high is no int"),
        (["DIR", "other"], "two models"),
        (["nowhere"], "no config.json"),
    ],
)
def test_serve_refuses_in_one_line(arguments, message, directory, capsys):
    words = [str(directory) if word == "DIR" else word for word in arguments]
    assert server.main(words) > 0
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_serve_refuses_a_port_that_is_taken(directory, servers, capsys):
    port = servers[0].address.rpartition(":")[2]
    assert server.main([str(directory), "--port", port]) == 1
    assert "give another --port" in capsys.readouterr().err


# ---------------------------------------------------------------------- real processes


@pytest.fixture(scope="module")
def children(directory):
    with serving.processes(directory, "127.0.0.1", "127.0.0.2") as two:
        yield two


@pytest.mark.slow
def test_a_killed_server_costs_nothing_but_time_and_comes_back_with_the_weights_of_now(
    children, opened, model_a, model_b, directory
):
    engine = opened(*children, deadline_s=60.0)
    load(engine, model_b)
    requests = ask(40, 200)
    engine.submit(requests)
    done = []
    while not done:
        done = engine.collect(1.0)
    children[0].kill()
    done += finish(engine, 60.0)
    assert [c.ids for c in sorted(done, key=lambda c: c.id)] == local_tokens(
        model_b, directory, requests
    )
    assert any(children[0].address in line for line in engine.notices())

    load(engine, model_a)
    children[0].start()
    wait_for_notice(engine, f"{children[0].address} is back with the weights of version 2", 60.0)
    children[1].stop()
    try:
        again = ask(4)
        with_one = open_only(engine, children[0])
        engine.submit(again)
        completions = finish(engine, 60.0)
    finally:
        children[1].go_on()
        with_one()
    assert [c.ids for c in completions] == local_tokens(model_a, directory, again)
    assert {c.spans[0].version for c in completions} == {2}


def open_only(engine, child):
    """Take every other server out of the engine's hands; returns what puts them back."""
    others = [s for s in engine._servers if s.address != child.address]
    for one in others:
        one.up = False

    def back():
        for one in others:
            one.up = True

    return back


def test_a_server_that_stands_still_is_given_up_and_taken_back(
    children, opened, model_a, directory
):
    engine = opened(*children, deadline_s=2.0)
    load(engine, model_a)
    children[1].stop()
    try:
        requests = ask(20)
        engine.submit(requests)
        completions = finish(engine, 30.0)
    finally:
        children[1].go_on()
    assert [c.ids for c in completions] == local_tokens(model_a, directory, requests)
    assert any("no completion in 2 s" in line for line in engine.notices())
    wait_for_notice(engine, f"{children[1].address} is back", 30.0)


def test_at_last_a_server_killed_in_the_middle_of_an_update_is_left_out_of_it(
    children, opened, model_b, directory
):
    engine = opened(*children, deadline_s=10.0)
    engine.pause()
    killer = threading.Thread(target=children[1].kill)
    killer.start()
    engine.update(1, model_b.state_dict())
    engine.resume()
    killer.join()
    requests = ask(20)
    engine.submit(requests)
    completions = finish(engine, 30.0)
    assert [c.ids for c in completions] == local_tokens(model_b, directory, requests)


def test_a_call_that_ends_while_the_engine_closes_leaves_no_socket_open(servers):
    wire = Wire(servers[0].address)
    connection, _ = wire._take(fresh=True)
    connection.timeout = 5.0
    connection.connect()
    wire.close()
    wire._give_back(connection)
    assert connection.sock is None
