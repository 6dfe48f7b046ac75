from tests.remote.tmpw_a import *
import itertools, random, pytest
pytestmark=pytest.mark.timeout(60)
del test_plain,test_four_on_one,test_batch,test_agents,test_mixed,test_proxy
LONG=experiment("reference:",rollout=8,updates=200)
def test_kill_mid_step():
    def story(g,procs,s,p,a):
        x,=s.start(a,stays_at=("step",37)); x.stays() if False else None
    ref=[u.link for u in outcome(ASKED)]
    a=free_address()
    with simulators() as s:
        s.start(a,2); x=s.start(a,1,stays_at=("step",37))[0]; y=s.start(a,1,stays_at=("begin",5))[0]
        def story(g):
            x.stays(); y.stays(); x.send(9); y.send(9); s.start(a,2); 
        t=time.time(); assert told(ASKED,machine(a),story).links==ref; print(time.time()-t)
def test_spare_times():
    ref=[u.link for u in outcome(LONG)]
    a=free_address(); times=[]
    with simulators() as s:
        live=s.start(a,5)
        def story(g):
            for at in range(5,200,12):
                if not g.until(at): break
                x=live.pop(0); t=time.time(); at=g.count; x.send(9); g.until(at+3); times.append(time.time()-t)
                live.extend(s.start(a,1))
        t=time.time(); assert told(LONG,machine(a),story).links==ref; print(time.time()-t)
    print("recovery",sorted(round(x,2) for x in times))
def cuts(pause):
    def story(g,procs,s,p,a):
        g.until(1); n=0; t=time.time()
        while not g.over and n<60: p.cut(); n+=1; time.sleep(pause)
        print("cuts",n,"updates by then",g.count,"in",time.time()-t)
    return story
@pytest.mark.parametrize("pause",[0.3,0.7,2.5])
def test_cuts(pause): check(0,cuts(pause),proxy=True)
def test_cut_mid_message():
    def story(g,procs,s,p,a):
        r=random.Random(1)
        for n in range(15):
            if not g.until(1+2*n): break
            p.left=r.randrange(1,400)
    check(0,story,proxy=True)
def test_delay():
    check(0,lambda g,procs,s,p,a: setattr(p,"delay",0.05),proxy=True,asked=experiment("reference:",rollout=8,updates=5))
def test_swallow_then_cut():
    def story(g,procs,s,p,a):
        g.until(5); p.swallows=True; time.sleep(1); p.cut(); p.swallows=False
    check(0,story,proxy=True)
def test_hold():
    def story(g,procs,s,p,a):
        for k in range(4): g.until(5*k); p.hold(); time.sleep(.5); p.let_go()
    check(0,story,proxy=True)
def test_refuse_long():
    def story(g,procs,s,p,a):
        g.until(5); p.refuses=True; p.cut(); time.sleep(4); p.refuses=False
    check(0,story,proxy=True)
def test_executor_killed():
    def story(g,procs,s,p,a):
        for at in (0,5,6,15): 
            g.until(at); g.kill("executor 0"); time.sleep(.5)
    check(0,story)
def test_late():
    def story(g,procs,s,p,a): time.sleep(3); s.start(a,4)
    check(0,story,clients=(0,{}))
