//! A connection to a replica set or a sharded deployment, shared by all entities that live there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mobimir_core::{
    policy::{ReadOperation, Reads},
    reading::{Position, Served},
};
use mongodb::{
    Client, Database,
    bson::{DateTime, Timestamp, doc},
    event::EventHandler,
    options::{Acknowledgment, ClientOptions, ReadConcern, WriteConcern},
};
use thiserror::Error;

use crate::{
    config::MongoConfig,
    link::Meters,
    members::{MemberRole, MemberState, Members, Monitor},
};

pub struct Deployment {
    client: Client,
    database: Database,
    config: MongoConfig,
    is_sharded: bool,
    /// The newest operation time of everything this process wrote, or was shown by the primary.
    written: AtomicU64,
    members: Arc<Members>,
    /// Measures the primary's clock, and the lag of secondaries where reads may go to them.
    _monitor: Monitor,
    meters: Meters,
}

/// To one member: a heartbeat and a look at the same time, and one to spare.
const MONITOR_CONNECTIONS_MAX: u32 = 3;

#[derive(Debug, Error)]
pub enum ConnectError {
    /// What the driver says of it is not repeated: it quotes the address, which may have a password in it.
    #[error(
        "expected a MongoDB address like mongodb://127.0.0.1:27017/?replicaSet=rs0, with %-escapes for what is special \
         in a user's name or password"
    )]
    BadAddress,
    #[error("cannot reach MongoDB at {addresses}: {source}; is it running? `mobimir lab mongo` starts one")]
    Unreachable {
        addresses: String,
        #[source]
        source: Box<mongodb::error::Error>,
    },
    #[error(
        "MongoDB at {addresses} is no replica set: start it with --replSet, because only there writes are durable"
    )]
    Standalone { addresses: String },
}

impl Deployment {
    pub async fn connect(config: MongoConfig) -> Result<Arc<Self>, ConnectError> {
        let bad_address = |_| ConnectError::BadAddress;
        let mut options = ClientOptions::parse(&config.uri).await.map_err(bad_address)?;
        options.app_name = Some("mobimir".to_owned());
        // Soon enough to say that nobody was asked, before the time of the whole request is up.
        options.server_selection_timeout = Some(config.connect_timeout.min(config.timeout / 2));
        options.connect_timeout = Some(config.connect_timeout);
        options.retry_reads = Some(true);
        options.retry_writes = Some(true);
        // What a write has answered stays, whoever becomes primary; and nobody reads what may still be taken back.
        let majority = WriteConcern::builder().w(Acknowledgment::Majority).journal(true);
        // The server does not wait longer than we do.
        options.write_concern = Some(majority.w_timeout(config.timeout).build());
        options.max_pool_size.get_or_insert(config.connections_max);
        options.read_concern = Some(ReadConcern::majority());
        let members = Arc::new(Members::default());
        let follower = members.clone();
        // Heartbeats do not wait behind shoppers.
        let mut for_monitor = options.clone();
        for_monitor.max_pool_size = Some(MONITOR_CONNECTIONS_MAX);
        options.sdam_event_handler = Some(EventHandler::callback(move |event| follower.note(event)));
        let addresses = options.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let client = Client::with_options(options).map_err(bad_address)?;
        let database = client.database(&config.database);
        let asked_at = DateTime::now();
        let hello = client.database("admin").run_command(doc! { "hello": 1 }).await;
        let hello = hello.map_err(|source| ConnectError::Unreachable {
            addresses: addresses.clone(),
            source: Box::new(source),
        })?;
        let sharded = hello.get_str("msg").is_ok_and(|message| message == "isdbgrid");
        if !sharded && !hello.contains_key("setName") {
            return Err(ConnectError::Standalone { addresses });
        }
        // Until the first heartbeat says more.
        if let Ok(theirs) = hello.get_datetime("localTime") {
            members.note_clock(*theirs, asked_at);
        }
        let for_monitor = Client::with_options(for_monitor).map_err(bad_address)?;
        let watched = for_monitor.database(&config.database);
        let reads_from_secondaries = !sharded && may_read_from_secondaries(&config.reads);
        let monitor =
            Monitor::start(for_monitor, &watched, members.clone(), config.heartbeat, reads_from_secondaries);
        Ok(Arc::new(Self {
            client,
            database,
            config,
            is_sharded: sharded,
            written: AtomicU64::new(0),
            members,
            _monitor: monitor,
            meters: Meters::default(),
        }))
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Whether it is behind a mongos.
    pub fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    pub fn config(&self) -> &MongoConfig {
        &self.config
    }

    /// Everything that this process wrote is there for whoever reads after this; and everything that the primary has shown
    /// it, because it may have told that to somebody, as when it answers once more for another instance.
    pub fn written(&self) -> Position {
        Position(self.written.load(Ordering::Acquire))
    }

    /// The members, and how far each secondary is.
    pub fn members(&self) -> Vec<MemberState> {
        self.members.states(Instant::now())
    }

    /// How each operation was read since the process started, those that were.
    pub fn served(&self) -> Vec<Served> {
        self.meters.served()
    }

    /// Why nothing can be written now, if there is no primary.
    pub fn trouble(&self) -> Option<String> {
        let members = self.members();
        let has_primary = members.iter().any(|member| member.role == MemberRole::Primary);
        // Behind a mongos there are no members to be seen.
        (!self.is_sharded && !has_primary).then(|| {
            let known: Vec<&str> = members.iter().map(|member| member.address.as_str()).collect();
            format!("MongoDB at {} has no primary", known.join(", "))
        })
    }

    /// Lines for `/metrics`, in the OpenMetrics text format, without its end.
    pub fn metrics(&self) -> String {
        self.meters.text(&self.members())
    }

    /// How old an answer may be, where a secondary may give it.
    pub(crate) fn budget(&self, operation: ReadOperation) -> Option<Duration> {
        let budget = self.config.reads.budget(operation)?;
        u64::try_from(budget.as_ms()).ok().map(Duration::from_millis)
    }

    pub(crate) fn members_known(&self) -> &Members {
        &self.members
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// What a majority is known to have: what this process wrote or was shown, and everybody's up to the last heartbeat.
    pub(crate) fn acknowledged(&self) -> Position {
        let beat = self.members.newest_beat().map_or(Position(0), |beat| beat.at);
        beat.max(self.written())
    }

    pub(crate) fn note_position(&self, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.written.fetch_max(position(at).0, Ordering::AcqRel);
        }
    }
}

fn may_read_from_secondaries(reads: &Reads) -> bool {
    reads.iter().any(|(operation, _)| reads.budget(operation).is_some())
}

/// Operation times as a number that rises with them.
pub(crate) fn position(time: Timestamp) -> Position {
    Position(u64::from(time.time) << 32 | u64::from(time.increment))
}

pub(crate) fn operation_time(position: Position) -> Timestamp {
    let high = u32::try_from(position.0 >> 32).unwrap_or(u32::MAX);
    // The lower half, by intention.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let low = position.0 as u32;
    Timestamp { time: high, increment: low }
}
