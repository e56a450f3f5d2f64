//! Knows what every reader has to find: somebody writes rising numbers and notes when each was acknowledged.

use std::{
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mobimir_core::{id::UserId, policy::ReadOperation, ports::UserStore, reading, time::Version, user::User};
use mobimir_mongodb::{Deployment, MongoUsers};
use tokio::task::JoinHandle;

use super::{BUDGETS, numbered};

/// Numbers in the order of their acknowledgement.
#[derive(Default)]
struct Acknowledged(RwLock<Vec<(u64, Instant)>>);

pub(super) struct Oracle {
    id: UserId,
    acknowledged: Arc<Acknowledged>,
    stopped: Arc<AtomicBool>,
    writer: JoinHandle<()>,
}

/// What readers have found so far.
#[derive(Default)]
pub(super) struct Found {
    pub(super) reads: AtomicU64,
    pub(super) too_old: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) slowest_ms: AtomicU64,
}

impl Acknowledged {
    fn note(&self, number: u64) {
        self.0.write().expect("nobody panicked").push((number, Instant::now()));
    }

    /// The highest number that was acknowledged by then.
    fn by(&self, moment: Instant) -> u64 {
        let all = self.0.read().expect("nobody panicked");
        let later = all.partition_point(|(_, at)| *at <= moment);
        later.checked_sub(1).map_or(0, |place| all[place].0)
    }
}

impl Oracle {
    /// Begins to write, through an instance of its own.
    pub(super) async fn start(deployment: Arc<Deployment>) -> Self {
        let users = MongoUsers::new(deployment);
        let user = numbered(1);
        let id = user.id;
        assert!(users.insert(user.clone()).await.expect("the first is written"));
        let acknowledged = Arc::new(Acknowledged::default());
        acknowledged.note(1);
        let stopped = Arc::new(AtomicBool::new(false));
        let writer = tokio::spawn(write(users, user, acknowledged.clone(), stopped.clone()));
        Self { id, acknowledged, stopped, writer }
    }

    /// Readers of every operation, until they are stopped. What they find is compared with what they had to.
    pub(super) fn readers(&self, deployment: &Arc<Deployment>, found: &Arc<Found>) -> Vec<JoinHandle<()>> {
        let reader = |(operation, budget_s): (ReadOperation, i64)| {
            let users = MongoUsers::new(deployment.clone());
            let budget = Duration::from_secs(budget_s.unsigned_abs());
            let (acknowledged, stopped, found) =
                (self.acknowledged.clone(), self.stopped.clone(), found.clone());
            let id = self.id;
            tokio::spawn(async move {
                while !stopped.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    let due = started.checked_sub(budget).map_or(0, |moment| acknowledged.by(moment));
                    let answer = reading::of(operation, users.get(id)).await;
                    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    found.slowest_ms.fetch_max(took_ms, Ordering::Relaxed);
                    found.reads.fetch_add(1, Ordering::Relaxed);
                    match answer {
                        Ok(user) => {
                            let shown = user.map_or(0, |user| user.version.0);
                            if shown < due {
                                println!("{operation}: {shown} was shown, {due} was due");
                                found.too_old.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        Err(_) => {
                            found.refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        };
        BUDGETS.into_iter().map(reader).collect()
    }

    /// How many numbers were acknowledged.
    pub(super) async fn stop(self, readers: Vec<JoinHandle<()>>) -> usize {
        self.stopped.store(true, Ordering::Relaxed);
        self.writer.await.expect("the writer ends well");
        for reader in readers {
            reader.await.expect("a reader ends well");
        }
        self.acknowledged.0.read().expect("nobody panicked").len()
    }
}

async fn write(users: MongoUsers, mut user: User, acknowledged: Arc<Acknowledged>, stopped: Arc<AtomicBool>) {
    // Whether one may still arrive whose outcome nobody knew.
    let mut is_doubtful = false;
    while !stopped.load(Ordering::Relaxed) {
        let expected = user.version;
        user.version = Version(expected.0 + 1);
        let is_written = match users.update(user.clone(), expected).await {
            Ok(is_written) => {
                assert!(is_written || is_doubtful, "nobody else writes this");
                is_written
            }
            Err(_) => {
                is_doubtful = true;
                false
            }
        };
        if is_written {
            acknowledged.note(user.version.0);
        } else {
            // What is there is found out before going on.
            user.version = loop {
                match users.get(user.id).await {
                    Ok(found) => break found.expect("it is there").version,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            };
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
