import time, signal
from tests.fakes.runs import experiment, outcome
from tests.fakes.weather import Proxy
from tests.remote.dialling import *
ASKED=experiment("reference:",rollout=8,updates=30)
def check(a, story=lambda g,*_:0, clients=(4,{}), m={}, asked=ASKED, proxy=False):
    ref=[u.link for u in outcome(asked)]
    address=free_address()
    with simulators() as s, Proxy(address) as p:
        n,how=clients
        procs=s.start(p.address if proxy else address, n, **how)
        t=time.time(); f=told(asked, machine(address,**m), lambda g: story(g,procs,s,p,address)); t=time.time()-t
        late=time.time()
        codes=[]
        for x in procs:
            try: codes.append(x.process.wait(3))
            except subprocess.TimeoutExpired: codes.append("hangs")
        print("seconds",round(t,2),"codes",codes, "marks",f.marks,"replaced",f.replaced)
        assert f.links==ref
    return f
def test_plain(): check(0)
def test_four_on_one(): check(0,clients=(1,dict(seats=4)))
def test_batch(): check(0,clients=(2,dict(rows=2)),m=dict(seat=2))
def test_agents(): check(0,clients=(1,dict(seats=4,agents=2)),asked=experiment("reference:?agents=2",rollout=8,updates=30))
def test_mixed(): check(0,clients=(2,{}),m=dict(remote=2))
def test_proxy(): check(0,proxy=True)
