"""Weights over NCCL: ranks, payloads, order and deadlines, with the transfer itself left out.

What joins GPUs is vLLM's; its trainer side is replaced at its border by `Recorder`, or, where vLLM
is installed, driven for real up to the broadcast. No broadcast has run in these tests.
"""

import base64
import pickle
import threading
import time
from contextlib import closing

import pytest
import serving
import torch

from trainer.engine import open_engine, server
from trainer.engine.collective import CollectiveTransfer, SyncClient, Weights
from trainer.engine.fleet import Crew
from trainer.engine.fleet import Server as Known
from trainer.engine.greeting import Card
from trainer.errors import EngineError

CALLS = (
    "init_weight_transfer_engine",
    "start_weight_update",
    "update_weights",
    "finish_weight_update",
    "shutdown_weight_transfer_engine",
)


@pytest.fixture(scope="module")
def model(model_a):
    return model_a


class Heard(list):
    """(address, route, body) of every call, in order."""

    def routes(self, address):
        return [route for at, route, _ in self if at == address]

    def bodies(self, route):
        return {at: body for at, called, body in self if called == route}


@pytest.fixture
def heard(monkeypatch):
    """What servers that take weights over NCCL are told; they have two and one workers."""
    heard = Heard()

    def route(name):
        def answer(one, body, query):
            heard.append((one.address, name, body))
            return {}

        return answer

    for name in CALLS:
        monkeypatch.setitem(server.POST, f"/{name}", route(name))
    return heard


@pytest.fixture
def servers(directory, heard):
    two = [serving.Here(directory), serving.Here(directory)]
    yield two
    for one in two:
        one.close()


@pytest.fixture
def both(servers):
    """What a client knows of them."""
    out = [Known(one.address) for one in servers]
    for one, world in zip(out, (2, 1), strict=True):
        one.card = Card("vllm 0.32.0", "m", 1024, world)
    yield out
    for one in out:
        one.wire.close()


class Recorder:
    """Stands in for vLLM's trainer side: the same calls in the same order, and no broadcast."""

    made = 0

    def __init__(self, backend, client, source, world, address):
        type(self).made += 1
        self.client, self.source, self.world, self.address = client, source, world, address
        self.sent, self.shut = [], False
        client.init_weight_transfer_engine({"world_size": world, "rank_offset": 1})

    def send_weights(self):
        meta = self.source.metadata()
        self.client.start_weight_update()
        self.client.update_weights({"names": [m.name for m in meta]})
        self.broadcast()
        self.client.finish_weight_update()

    def broadcast(self):
        self.sent.append([name for name, _ in self.source])

    def shutdown(self):
        self.shut = True


def transfer(servers, opens=Recorder, deadline=5.0):
    return CollectiveTransfer("nccl", servers, Crew(), deadline, opens)


def test_every_server_gets_the_ranks_behind_those_before_it(both, heard, model):
    sends = transfer(both)
    assert sends.send(both, model.state_dict(), "x") == {}
    inits = heard.bodies("init_weight_transfer_engine")
    assert [inits[s.address]["init_info"] for s in both] == [
        {"world_size": 4, "rank_offset": 1},
        {"world_size": 4, "rank_offset": 3},
    ]
    for one in both:
        assert heard.routes(one.address) == list(CALLS[:4])
    names = heard.bodies("update_weights")[both[0].address]["update_info"]["names"]
    assert names == list(model.state_dict())
    assert "lm_head.weight" in names  # tied, and sent on purpose
    assert sends.engine.sent == [names]
    assert sends.engine.address == "127.0.0.1"


def test_the_group_stands_until_a_server_is_lost_or_back(both, heard, model):
    sends = transfer(both)
    weights = model.state_dict()
    sends.send(both, weights, "x")
    first = sends.engine
    sends.send(both, weights, "y")
    assert sends.engine is first
    sends.send(both[:1], weights, "z")
    assert sends.engine is not first
    assert sends.engine.world == 3
    assert first.shut
    assert heard.routes(both[0].address)[-5:] == [CALLS[4], *CALLS[:4]]
    assert CALLS[4] not in heard.routes(both[1].address)  # it is gone: nobody asks it


@pytest.mark.parametrize("route", ["start_weight_update", "update_weights"])
def test_a_refusal_is_seen_before_or_while_the_broadcast_waits(both, model, monkeypatch, route):
    hangs = threading.Event()

    class Hanging(Recorder):
        def send_weights(self):
            self.client.start_weight_update()
            threading.Thread(target=self.update, daemon=True).start()
            hangs.wait(60)  # a peer never comes

        def update(self):
            try:
                self.client.update_weights({"names": []})
            except EngineError:
                return

    def refuse(one, body, query):
        raise RuntimeError("out of memory")

    monkeypatch.setitem(server.POST, f"/{route}", refuse)
    sends = transfer(both, Hanging, deadline=30.0)
    start = time.monotonic()
    with pytest.raises(EngineError, match=rf"^update \({route}\): .*out of memory.*is broken"):
        sends.send(both, model.state_dict(), "x")
    assert time.monotonic() - start < 15
    hangs.set()


@pytest.mark.parametrize("where", ["joining the group", "broadcast"])
def test_a_collective_that_hangs_ends_at_the_deadline(both, heard, model, where):
    hangs = threading.Event()

    class Hanging(Recorder):
        def __init__(self, *args):
            if where != "broadcast":
                hangs.wait(60)
            super().__init__(*args)

        def broadcast(self):
            hangs.wait(60)

    sends = transfer(both, Hanging, deadline=0.5)
    start = time.monotonic()
    with pytest.raises(EngineError, match=rf"^update: {where} with .* not done in 0\.5 s"):
        sends.send(both, model.state_dict(), "x")
    assert time.monotonic() - start < 8
    hangs.set()


def test_what_vllm_raises_is_told_in_one_line(both, heard, model):
    class Wrong(Recorder):
        def broadcast(self):
            raise ValueError("shapes differ\nand so on")

    with pytest.raises(EngineError, match=r"^update: broadcast with .* failed: shapes differ$"):
        transfer(both, Wrong).send(both, model.state_dict(), "x")


def test_handles_of_cuda_ipc_travel_pickled(both, heard):
    client = SyncClient(both, Crew(), 5.0)
    client.init_weight_transfer_engine({"packed": True})
    client.update_weights([{"names": ["a"], "ipc_handles": {"GPU-1": (1, (2, 3))}}])
    client.finish_weight_update("7")
    assert heard.bodies("init_weight_transfer_engine")[both[1].address] == {
        "init_info": {"packed": True}
    }
    [told] = heard.bodies("update_weights")[both[1].address]["update_info"]
    assert told["names"] == ["a"]
    handles = pickle.loads(base64.b64decode(told["ipc_handles_pickled"]))
    assert handles == {"GPU-1": (1, (2, 3))}
    assert heard.bodies("finish_weight_update")[both[0].address] == {"weight_version": "7"}


def test_an_engine_over_a_collective_takes_a_lost_server_back_with_everyone(
    servers, heard, model, directory, monkeypatch
):
    models = server.GET["/v1/models"]

    def card(*args):
        [told] = models(*args)["data"]
        return {"data": [{**told, "owned_by": "vllm"}]}

    monkeypatch.setitem(server.GET, "/v1/models", card)
    monkeypatch.setitem(server.GET, "/version", lambda *args: {"version": "0.32.0"})
    monkeypatch.setattr("trainer.engine.collective.open_trainer", Recorder)
    Recorder.made = 0
    addresses = [one.address for one in servers]
    engine = open_engine("served", directory, addresses=addresses, transfer="nccl", deadline_s=10.0)
    with closing(engine):
        for _ in range(2):
            engine.pause()
            engine.update(engine.version + 1, model.state_dict())
            engine.resume()
        assert Recorder.made == 1
        lost = engine._servers[1]
        from trainer.engine.wire import ServerFault

        engine._traffic.lose(lost, ServerFault("generation", lost.address, "it is tired"))
        until = time.monotonic() + 10
        while not lost.up and time.monotonic() < until:
            engine.collect(0.0)
            time.sleep(0.02)
        assert lost.up
        assert Recorder.made == 2
        assert heard.routes(addresses[0])[-4:] == heard.routes(addresses[1])[-4:] == list(CALLS[:4])
        assert not engine._traffic.held


@pytest.mark.vllm
def test_vllms_own_trainer_side_drives_our_client_and_our_weights(both, heard, model):
    """All of it but NCCL: the handshake, the metadata and the order of what would be broadcast."""
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerWeightTransferEngine

    class Dry(NCCLTrainerWeightTransferEngine):
        def _broadcast(self, source, meta):
            self.sent = [name for name, _ in self._checked_iter(source, meta)]

    source = Weights()
    source.present = model.state_dict()
    engine = Dry(client=SyncClient(both, Crew(), 5.0), source=source)
    engine.send_weights()
    assert engine.sent == list(model.state_dict())
    for one in both:
        assert heard.routes(one.address) == list(CALLS[1:4])
        info = heard.bodies("update_weights")[one.address]["update_info"]
        assert info["names"] == list(model.state_dict())
        assert set(info["dtype_names"]) == {"float32"}
        assert info["shapes"][0] == list(model.state_dict()["model.embed_tokens.weight"].shape)


@pytest.mark.gpu
@pytest.mark.vllm
@pytest.mark.slow
def test_weights_arrive_over_nccl(tmp_path, random_model):
    """The learner on the first GPU and a vLLM server on the second: the broadcast itself."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs: one learns, one generates")
    from vllm_server import vllm_server

    random_model(seed=1).to(torch.bfloat16).save_pretrained(tmp_path)
    other = random_model(seed=2).to(torch.bfloat16).cuda()
    with vllm_server(tmp_path, device="cuda:1") as address:
        engine = open_engine("served", tmp_path, addresses=[address], transfer="nccl")
        with closing(engine):
            engine.pause()
            engine.update(1, other.state_dict())
            engine.resume()
            from trainer.engine.base import Request, SamplingParams, generate

            [completion] = generate(engine, [Request(1, (1, 2, 3), SamplingParams(20, seed=1))])
            ids = torch.tensor([[1, 2, 3, *completion.ids]], device="cuda")
            logp = torch.log_softmax(other(ids).logits[0].float(), -1)[2:-1]
            expected = logp.gather(1, ids[0, 3:, None])[:, 0].cpu()
            assert (expected - torch.tensor(completion.logprobs)).abs().mean() < 0.05
