//! Two stores, some instances, shoppers and an operator, all in one thread and in a time of their own.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    moving::{Movable, Whole},
    notes::NoteStore,
    time::{Clock, Timestamp},
};
use mobimir_migrate::{
    backfill::{Backfill, Selection},
    follow::{Controller, Follower, MoveError, Prepare},
    job::{Ended, Progress},
    phase::{Event, Phase, Which},
    record::{Notes, Record},
    shadow::Shadow,
    standing::Standing,
    throttle::Nobody,
    timing::Timing,
    verify::{Comparison, Purpose},
};
use mobimir_testkit::model::ModelStore;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use crate::{
    chance::Chance,
    faulty::{Faults, Faulty},
    trade::{Broken, Trade},
};

/// Time that passes only when everybody waits.
pub(crate) struct Now(pub(crate) Instant);

impl Clock for Now {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(1_700_000_000_000 + passed)
    }
}

const INSTANCES: usize = 2;
const SHOPPERS: u64 = 3;
const RECONCILE_PERIOD: Duration = Duration::from_millis(700);
/// Quicker than in earnest, so that more happens; but in the same order.
pub(crate) const TIMING: Timing = Timing {
    beat: Duration::from_millis(300),
    lease: Duration::from_millis(2_000),
    lease_margin: Duration::from_millis(100),
    write_timeout: Duration::from_millis(2_100),
    handover_wait_max: Duration::from_millis(3_000),
    mirror_age_max: Duration::from_secs(60),
};
/// For how long things go wrong.
const TROUBLE: Duration = Duration::from_secs(60);
/// How long it may take until all is well when nothing goes wrong any more.
const REST_MAX: Duration = Duration::from_secs(600);

/// How often, in times out of a thousand, the operator goes down instead of up: most often where that is of interest.
fn gives_up(phase: Phase) -> u64 {
    match phase {
        Phase::Source | Phase::DualWrite | Phase::Backfill | Phase::Verify => 20,
        Phase::Handover | Phase::Switch => 150,
        Phase::ReadTarget | Phase::Target => 400,
    }
}

struct World<T: Trade> {
    chance: Chance,
    clock: Arc<Now>,
    source: ModelStore,
    target: ModelStore,
    notes: ModelStore,
    faults: [Arc<Faults>; 2],
    instances: Mutex<Vec<Instance<T>>>,
    is_over: AtomicBool,
    broken: Mutex<Option<String>>,
}

/// A process.
struct Instance<T: Trade> {
    port: Arc<T::Port>,
    shadow: Arc<Shadow>,
    notes_faults: Arc<Faults>,
    tasks: Vec<AbortHandle>,
}

/// How far a run came, so that a simulation in which nothing happens is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) highest: Option<Phase>,
    pub(crate) rollbacks: u64,
    pub(crate) late_writes: u64,
    /// The most of one instance in one comparison.
    pub(crate) shadow_reads: u64,
}

/// Runs one seed; says what was broken.
pub(crate) async fn run<T: Trade>(seed: u64) -> Result<Reached, String> {
    let chance = Chance::new(seed);
    let world = Arc::new(World::<T> {
        clock: Arc::new(Now(Instant::now())),
        source: ModelStore::default(),
        target: ModelStore::default(),
        notes: ModelStore::default(),
        faults: [Faults::new(chance.clone(), 20), Faults::new(chance.clone(), 60)],
        instances: Mutex::default(),
        is_over: AtomicBool::new(false),
        broken: Mutex::default(),
        chance,
    });
    world.live().await
}

impl<T: Trade> World<T> {
    async fn live(self: Arc<Self>) -> Result<Reached, String> {
        for _ in 0..INSTANCES {
            self.start_instance();
        }
        let notes = self.plain_notes();
        let record = Record::new("source", "target", self.clock.now());
        notes.replace_record(None, &record).await.map_err(|error| error.to_string())?;
        let mut shoppers = JoinSet::new();
        for n in 0..SHOPPERS {
            let world = self.clone();
            shoppers.spawn(async move { world.shop(T::new(n)).await });
        }
        let trouble = tokio::spawn({
            let world = self.clone();
            async move { world.make_trouble().await }
        });
        let operator = tokio::spawn({
            let world = self.clone();
            async move { world.operate().await }
        });
        sleep(TROUBLE).await;
        trouble.abort();
        self.come_to_rest();
        let operated = timeout(REST_MAX, operator).await;
        self.is_over.store(true, Ordering::Relaxed);
        let mut traders = Vec::new();
        while let Some(trader) = shoppers.join_next().await {
            traders.extend(trader.map_err(|error| error.to_string())?);
        }
        if let Some(broken) = self.broken.lock().expect("nobody panics here").take() {
            return Err(broken);
        }
        let mut reached = match operated {
            Ok(reached) => reached.map_err(|error| error.to_string())??,
            Err(_) => return Err("the migration has not come to its end".to_owned()),
        };
        self.look_at_the_end(&traders).await?;
        reached.late_writes =
            self.faults.iter().map(|faults| faults.late_writes.load(Ordering::Relaxed)).sum();
        Ok(reached)
    }

    fn plain_notes(&self) -> Notes {
        Notes::new(Arc::new(self.notes.clone()), T::ENTITY)
    }

    fn faulty_notes(&self, faults: &Arc<Faults>) -> Notes {
        let store: Arc<dyn NoteStore> = Arc::new(self.notes.clone());
        Notes::new(Arc::new(Faulty { store, faults: faults.clone() }), T::ENTITY)
    }

    fn moving(&self, which: Which) -> Arc<dyn Movable<T::W>> {
        let (store, faults) = match which {
            Which::Source => (&self.source, &self.faults[0]),
            Which::Target => (&self.target, &self.faults[1]),
        };
        T::side(store, faults).moving
    }

    fn start_instance(self: &Arc<Self>) {
        let id = Uuid::from_u64_pair(self.chance.next(), self.chance.next());
        let standing = Standing::new(&TIMING);
        let (source, target) =
            (T::side(&self.source, &self.faults[0]), T::side(&self.target, &self.faults[1]));
        let (migrating, port) = T::port(source, target, standing.clone(), self.clock.clone());
        let notes_faults = Faults::new(self.chance.clone(), 10);
        let mut follower = Follower::new(self.faulty_notes(&notes_faults), standing, id, TIMING, "source");
        let shadow = migrating.shadow().clone();
        let prepare: Prepare = Box::new(move |record| {
            shadow.follow(&record);
            Box::pin(async { true })
        });
        let follow = tokio::spawn(async move { follower.run(prepare).await });
        let mut tasks = vec![follow.abort_handle()];
        for which in [Which::Source, Which::Target] {
            let mirror = migrating.mirror_of(which).expect("the target is set").clone();
            let reconcile = tokio::spawn(async move {
                loop {
                    let _ = mirror.reconcile().await;
                    sleep(RECONCILE_PERIOD).await;
                }
            });
            tasks.push(reconcile.abort_handle());
        }
        let instance = Instance { port, shadow: migrating.shadow().clone(), notes_faults, tasks };
        self.instances.lock().expect("nobody panics here").push(instance);
    }

    /// kill -9
    fn kill_instance(&self) {
        let mut instances = self.instances.lock().expect("nobody panics here");
        if instances.is_empty() {
            return;
        }
        let at = self.chance.below(instances.len() as u64) as usize;
        let killed = instances.remove(at);
        killed.tasks.iter().for_each(AbortHandle::abort);
    }

    async fn make_trouble(self: Arc<Self>) {
        loop {
            // Rarely, but often when it is most dangerous.
            sleep(Duration::from_millis(100)).await;
            let Ok(Some(read)) = self.plain_notes().record().await else { continue };
            let control = read.value.control;
            let is_dangerous = matches!(control.phase, Phase::Handover | Phase::Switch | Phase::ReadTarget)
                || (control.phase == Phase::Verify && control.verified);
            if !self.chance.permille(if is_dangerous { 200 } else { 10 }) {
                continue;
            }
            match self.chance.below(8) {
                0 | 1 => {
                    self.kill_instance();
                    sleep(Duration::from_millis(self.chance.below(4_000))).await;
                    self.start_instance();
                }
                2..=5 => {
                    // The one that has to be copied to, as a rule.
                    let faults = &self.faults[usize::from(self.chance.permille(700))];
                    faults.hang(true);
                    sleep(Duration::from_millis(self.chance.below(6_000))).await;
                    faults.hang(false);
                }
                6 => {
                    // One instance loses touch with the notes.
                    let faults = {
                        let instances = self.instances.lock().expect("nobody panics here");
                        let at = self.chance.below(instances.len().max(1) as u64) as usize;
                        instances.get(at).map(|instance| instance.notes_faults.clone())
                    };
                    if let Some(faults) = faults {
                        faults.hang(true);
                        sleep(Duration::from_millis(self.chance.below(5_000))).await;
                        faults.hang(false);
                    }
                }
                _ => self.start_instance(),
            }
            while self.instances.lock().expect("nobody panics here").len() > 3 {
                self.kill_instance();
            }
        }
    }

    fn come_to_rest(self: &Arc<Self>) {
        self.faults.iter().for_each(|faults| faults.end());
        while self.instances.lock().expect("nobody panics here").len() < INSTANCES {
            self.start_instance();
        }
        let instances = self.instances.lock().expect("nobody panics here");
        instances.iter().for_each(|instance| instance.notes_faults.end());
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.broken.lock().expect("nobody panics here").is_some()
    }

    /// Does one thing after the other, each through any instance. What a killed instance has begun goes on until its lease
    /// is over, as in a process that only cannot be reached.
    async fn shop(self: Arc<Self>, mut trader: T) -> Vec<T> {
        while !self.is_over() {
            sleep(Duration::from_millis(self.chance.below(250))).await;
            let Some(port) = self.any_instance() else { continue };
            let now = self.clock.now();
            let done = if self.chance.permille(300) {
                trader.look(port, now).await
            } else {
                trader.act(port, &self.chance, now).await
            };
            if let Err(Broken(what)) = done {
                let phase = self.plain_notes().record().await.ok().flatten().map(|read| read.value.control);
                let at = self.clock.now();
                *self.broken.lock().expect("nobody panics here") = Some(format!("{what} ({at}, {phase:?})"));
            }
        }
        vec![trader]
    }

    fn any_instance(&self) -> Option<Arc<T::Port>> {
        let instances = self.instances.lock().expect("nobody panics here");
        let at = self.chance.below(instances.len().max(1) as u64) as usize;
        instances.get(at).map(|instance| instance.port.clone())
    }

    /// Goes up and down the ladder as chance will have it, and in the end up to the top or down to the bottom.
    async fn operate(self: Arc<Self>) -> Result<Reached, String> {
        let (mut reached, mut number) = (Reached::default(), 0);
        let goal = if self.chance.permille(500) { Phase::ReadTarget } else { Phase::Source };
        let started = Instant::now();
        let mut controller = self.controller();
        while !self.is_over() {
            sleep(Duration::from_millis(100 + self.chance.below(500))).await;
            if self.chance.permille(50) {
                // Somebody else goes on.
                controller = self.controller();
            }
            let Ok(Some(read)) = self.plain_notes().record().await else { continue };
            self.look_at_shadows(&mut reached)?;
            let control = read.value.control;
            reached.highest = reached.highest.max(Some(control.phase));
            let is_calm = started.elapsed() > TROUBLE;
            if is_calm && control.phase == goal {
                return Ok(reached);
            }
            let up =
                if is_calm { control.phase < goal } else { !self.chance.permille(gives_up(control.phase)) };
            // The last step cannot be taken back, and some should go there and back.
            if up && control.phase == Phase::ReadTarget {
                continue;
            }
            if up && control.phase == Phase::Backfill && !control.backfilled {
                self.backfill(&mut controller, control.epoch).await;
            } else if up && control.phase == Phase::Verify && !control.verified {
                number += 1;
                self.compare(&mut controller, control.epoch, number).await;
            } else {
                let event = if up { Event::Advance } else { Event::Rollback };
                match controller.apply(event, "").await {
                    Ok(_) if !up => reached.rollbacks += 1,
                    Ok(_) | Err(MoveError::Refused(_) | MoveError::Overtaken | MoveError::Store(_)) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
        }
        Ok(reached)
    }

    /// Whatever goes wrong, what is not copied yet must not be taken for a difference.
    fn look_at_shadows(&self, reached: &mut Reached) -> Result<(), String> {
        for instance in self.instances.lock().expect("nobody panics here").iter() {
            if let Some((_, counted)) = instance.shadow.current() {
                reached.shadow_reads = reached.shadow_reads.max(counted.alike);
                if counted.different > 0 {
                    return Err(format!("a shadow read differs: {:?}", counted.samples));
                }
            }
        }
        Ok(())
    }

    fn controller(&self) -> Controller<T::W> {
        let notes = self.faulty_notes(&self.faults[0]);
        Controller::new(
            notes,
            self.moving(Which::Source),
            self.moving(Which::Target),
            self.clock.clone(),
            TIMING,
        )
    }

    async fn backfill(&self, controller: &mut Controller<T::W>, epoch: u64) {
        let backfill = Backfill {
            notes: self.faulty_notes(&self.faults[0]),
            from: self.moving(Which::Source),
            to: self.moving(Which::Target),
            clock: self.clock.clone(),
            pressure: Arc::new(Nobody),
            selection: Selection::default(),
            into_nothing: false,
        };
        // The migrator is killed now and then.
        let lives = Duration::from_millis(300 + self.chance.below(8_000));
        let ran = timeout(lives, backfill.run("backfill", epoch, Arc::default())).await;
        if let Ok(Ok(Ended::Whole { .. })) = ran {
            let _ = controller.apply(Event::Backfilled { epoch }, "backfilled").await;
        }
    }

    async fn compare(&self, controller: &mut Controller<T::W>, epoch: u64, number: u64) {
        let comparison = Comparison {
            notes: self.faulty_notes(&self.faults[0]),
            source: self.moving(Which::Source),
            target: self.moving(Which::Target),
            clock: self.clock.clone(),
            pressure: Arc::new(Nobody),
            purpose: Purpose::Verify,
            number,
            is_forward: true,
        };
        let progress = Arc::<Progress>::default();
        let lives = Duration::from_millis(1_000 + self.chance.below(30_000));
        let Ok(Ok(compared)) = timeout(lives, comparison.run(progress)).await else { return };
        if compared.total() > 0 {
            // Whatever lags, is lost or comes twice: it is on its way, and no difference.
            let found = format!("a comparison has found {:?}", compared.by_kind);
            *self.broken.lock().expect("nobody panics here") = Some(found);
        }
        if let Ended::Whole { .. } = compared.ended {
            let (ranges_planned, ranges_compared) = (compared.planned, compared.done);
            let event =
                Event::Compared { epoch, ranges_planned, ranges_compared, differences: compared.total() };
            let _ = controller.apply(event, "compared").await;
        }
    }

    /// All instances show everything, and once nothing is left to be copied both stores say the same.
    async fn look_at_the_end(&self, traders: &[T]) -> Result<(), String> {
        // What was begun before the end.
        sleep(Duration::from_secs(10)).await;
        let ports: Vec<Arc<T::Port>> = {
            let instances = self.instances.lock().expect("nobody panics here");
            instances.iter().map(|instance| instance.port.clone()).collect()
        };
        for trader in traders {
            for port in &ports {
                let looked = trader.look(port.clone(), self.clock.now()).await;
                looked
                    .map_err(|Broken(what)| format!("at the end: {what}"))?
                    .map_err(|error| error.to_string())?;
            }
        }
        let record = self.plain_notes().record().await.map_err(|error| error.to_string())?;
        let phase = record.map(|read| read.value.control.phase);
        if phase != Some(Phase::ReadTarget) {
            return Ok(());
        }
        // They misbehave no more.
        let [source, target] = [Which::Source, Which::Target].map(|which| self.moving(which));
        let left = target.backlog().await.map_err(|error| error.to_string())?;
        if left.entities > 0 {
            return Err(format!("at the end {} entities are not copied", left.entities));
        }
        for key in traders.iter().flat_map(Trade::keys) {
            let facts = async |moving: &Arc<dyn Movable<T::W>>| {
                let found = moving.whole(key).await.map_err(|error| error.to_string())?;
                Ok::<_, String>(found.whole.map(|whole| whole.facts()))
            };
            let (one, other) = (facts(&source).await?, facts(&target).await?);
            if one != other {
                return Err(format!("at the end the stores differ in {key}: {one:?} and {other:?}"));
            }
        }
        Ok(())
    }
}
