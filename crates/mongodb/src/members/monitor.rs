//! Writes heartbeats, which also tell the primary's time, and looks for them on every secondary. Each member has a task and a time limit of its own, so that
//! one that hangs holds up nobody.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use mobimir_core::reading::Position;
use mongodb::{
    Client, Collection, Database,
    bson::{DateTime, Uuid, doc},
    options::ReturnDocument,
};
use serde::{Deserialize, Serialize};
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::{MissedTickBehavior, timeout},
};

use super::{Members, beats::Beat, member::MemberRole};
use crate::deployment::position;

/// Ends with its owner.
pub(crate) struct Monitor(Vec<JoinHandle<()>>);

/// Of every process one document, in the data's own database.
const HEARTBEATS: &str = "heartbeats";
/// How often the primary's time is asked for where nobody looks for beats.
const CLOCK_PERIOD: Duration = Duration::from_secs(5);
/// How long a beat may take to reach a majority. One that takes longer is none.
const BEAT_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a member may take to show its beat.
const LOOK_TIME_MAX: Duration = Duration::from_millis(800);
/// Documents of processes that are gone are removed after this.
const GONE_AFTER_MS: i64 = 3_600_000;

#[derive(Debug, Serialize, Deserialize)]
struct Heartbeat {
    #[serde(rename = "_id")]
    id: Uuid,
    number: i64,
    at: DateTime,
}

#[derive(Clone)]
struct Heart {
    id: Uuid,
    client: Client,
    beats: Collection<Heartbeat>,
    members: Arc<Members>,
    period: Duration,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Monitor {
    pub(crate) fn start(
        client: Client,
        database: &Database,
        members: Arc<Members>,
        period: Duration,
        reads_from_secondaries: bool,
    ) -> Self {
        let period = if reads_from_secondaries { period } else { period.max(CLOCK_PERIOD) };
        let heart =
            Heart { id: Uuid::new(), client, beats: database.collection(HEARTBEATS), members, period };
        let mut tasks = vec![tokio::spawn(heart.clone().beat())];
        if reads_from_secondaries {
            tasks.push(tokio::spawn(heart.watch()));
        }
        Self(tasks)
    }
}

impl Heart {
    async fn beat(self) {
        self.remove_the_gone().await;
        let mut ticks = tokio::time::interval(self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 1.. {
            ticks.tick().await;
            let sent = Instant::now();
            match timeout(BEAT_TIME_MAX, self.write(number)).await {
                Ok(Ok(Some(at))) => self.members.known_mut().beats.push(Beat { number, at, sent }),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a heartbeat could not be written"),
                Err(_) => tracing::debug!("a heartbeat did not reach a majority in time"),
            }
        }
    }

    /// The number only ever rises: a beat that was given up and arrives late must not hide a later one.
    async fn write(&self, number: u64) -> mongodb::error::Result<Option<Position>> {
        let mut session = self.client.start_session().await?;
        let update = doc! { "$max": { "number": number.cast_signed() }, "$currentDate": { "at": true } };
        let write = self.beats.find_one_and_update(doc! { "_id": self.id }, update).upsert(true);
        let sent = DateTime::now();
        let written = write.return_document(ReturnDocument::After).session(&mut session).await?;
        if let Some(beat) = written {
            self.members.note_clock(beat.at, sent);
        }
        Ok(session.operation_time().map(position))
    }

    async fn remove_the_gone(&self) {
        let long_ago = doc! { "$subtract": ["$$NOW", GONE_AFTER_MS] };
        let gone = doc! { "$expr": { "$lt": ["$at", long_ago] } };
        if let Ok(Err(error)) = timeout(BEAT_TIME_MAX, self.beats.delete_many(gone)).await {
            tracing::debug!(%error, "heartbeats of processes that are gone stay");
        }
    }

    /// Keeps a task for every secondary there is.
    async fn watch(self) {
        let mut looking = Looking::default();
        loop {
            let secondaries: Vec<String> = self.secondaries();
            looking.0.retain(|address, task| {
                let stays = secondaries.contains(address);
                if !stays {
                    task.abort();
                }
                stays
            });
            for address in secondaries {
                let look = || tokio::spawn(self.clone().look(address.clone())).abort_handle();
                looking.0.entry(address.clone()).or_insert_with(look);
            }
            self.members.changed.notified().await;
        }
    }

    fn secondaries(&self) -> Vec<String> {
        let known = self.members.known();
        let secondaries =
            known.members.iter().filter(|(_, entry)| entry.member.role() == MemberRole::Secondary);
        secondaries.map(|(address, _)| address.clone()).collect()
    }

    async fn look(self, address: String) {
        let mut ticks = tokio::time::interval(self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let asked = {
                let known = self.members.known();
                known.members.get(&address).map(|entry| (entry.criteria.clone(), entry.member.epoch()))
            };
            let Some((criteria, epoch)) = asked else { return };
            // At the level of a majority, as everything here is read: what it shows cannot be taken back.
            let shown = self.beats.find_one(doc! { "_id": self.id }).selection_criteria(criteria);
            let shown = timeout(LOOK_TIME_MAX, shown.into_future()).await;
            let mut known = self.members.known_mut();
            let known = &mut *known;
            let Some(entry) = known.members.get_mut(&address) else { return };
            match shown {
                Ok(Ok(Some(beat))) => {
                    entry.member.showed(beat.number.cast_unsigned(), epoch, &known.beats, Instant::now());
                }
                Ok(Ok(None)) | Ok(Err(_)) | Err(_) => {
                    entry.member.kept_silent();
                    entry.lost.notify_waiters();
                }
            }
        }
    }
}

/// The tasks that look for beats; they end with whoever keeps them.
#[derive(Default)]
struct Looking(HashMap<String, AbortHandle>);

impl Drop for Looking {
    fn drop(&mut self) {
        for task in self.0.values() {
            task.abort();
        }
    }
}
