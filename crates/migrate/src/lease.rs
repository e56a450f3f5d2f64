//! Who follows a migration, and whether all of them have come along.
//!
//! Each instance writes a note of its own again and again: how far it is, and a beat that is raised every time. Nobody
//! compares clocks. An instance stops serving when its own clock says that its last note is too old; whoever watches takes
//! an instance for gone when he has not seen its beat change for longer than that.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use uuid::Uuid;

use crate::timing::Timing;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub instance: Uuid,
    /// The epoch that it follows, with nothing left from before.
    pub confirmed: u64,
    pub beat: u64,
    /// How much of what its shoppers may feel is used up, in thousandths.
    #[serde(default)]
    pub felt_permille: u32,
}

/// What a watcher remembers of the leases he has seen.
#[derive(Debug)]
pub struct Watch {
    /// For how long a beat has to stand still.
    gone_after: Duration,
    /// After so long it is not certain that he is well.
    silent_after: Duration,
    write_timeout: Duration,
    seen: BTreeMap<Uuid, (Lease, Instant)>,
    /// When the last instance that had to confirmed its epoch, or was gone, and which epoch that was.
    settled: Option<(u64, Instant)>,
}

/// What the leases say about an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followers {
    pub confirmed: Vec<Uuid>,
    /// Not confirmed, and heard of.
    pub behind: Vec<Uuid>,
    /// Not heard of for so long that it does not serve any more.
    pub gone: Vec<Uuid>,
    /// Whether a write of somebody who is behind or gone can still arrive. Those who confirm have waited for theirs
    /// themselves.
    pub may_be_late: bool,
    /// Whether somebody was not heard of for a while, and may be gone without being known to be.
    pub is_anyone_silent: bool,
    /// Since when nobody is behind.
    pub settled_for: Option<Duration>,
}

/// A lease of somebody who is gone is removed so long after nothing of him can arrive any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

impl Watch {
    pub fn new(timing: &Timing) -> Self {
        Self {
            gone_after: timing.lease + timing.lease_margin,
            silent_after: timing.lease / 2,
            write_timeout: timing.write_timeout,
            seen: BTreeMap::new(),
            settled: None,
        }
    }

    /// Takes note of what the leases are now. Those that are not there any more have ended well.
    pub fn look(&mut self, leases: &[Lease], now: Instant) {
        self.seen.retain(|instance, _| leases.iter().any(|lease| lease.instance == *instance));
        for lease in leases {
            let entry = self.seen.entry(lease.instance).or_insert((*lease, now));
            if entry.0 != *lease {
                *entry = (*lease, now);
            }
        }
    }

    pub fn followers(&mut self, epoch: u64, now: Instant) -> Followers {
        let (mut confirmed, mut behind, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        let (mut may_be_late, mut is_anyone_silent) = (false, false);
        for (instance, (lease, changed_at)) in &self.seen {
            let silent_for = now.duration_since(*changed_at);
            let is_over = silent_for > self.gone_after + self.write_timeout;
            is_anyone_silent |= silent_for > self.silent_after && !is_over;
            let list = if lease.confirmed == epoch {
                &mut confirmed
            } else if silent_for > self.gone_after {
                may_be_late |= !is_over;
                &mut gone
            } else {
                &mut behind
            };
            list.push(*instance);
        }
        may_be_late |= !behind.is_empty();
        match self.settled {
            _ if !behind.is_empty() => self.settled = None,
            Some((settled, _)) if settled == epoch => {}
            _ => self.settled = Some((epoch, now)),
        }
        let settled_for = self.settled.map(|(_, since)| now.duration_since(since));
        Followers { confirmed, behind, gone, may_be_late, is_anyone_silent, settled_for }
    }

    /// What shoppers of other instances than this feel, where they feel most, in thousandths of the limit.
    pub fn felt_permille(&self, not_at: Uuid, now: Instant) -> u32 {
        let heard_of = self.seen.values().filter(|(_, at)| now.duration_since(*at) <= self.silent_after);
        let others = heard_of.filter(|(lease, _)| lease.instance != not_at);
        others.map(|(lease, _)| lease.felt_permille).max().unwrap_or_default()
    }

    /// Those who have been gone for so long that nobody needs to know of them.
    pub fn forgotten(&self, now: Instant) -> Vec<Uuid> {
        let for_good = |changed_at: Instant| {
            now.duration_since(changed_at) > self.gone_after + self.write_timeout + FORGOTTEN_AFTER
        };
        let gone = self.seen.iter().filter(|(_, (_, changed_at))| for_good(*changed_at));
        gone.map(|(instance, _)| *instance).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        beat: Duration::from_secs(1),
        lease: Duration::from_secs(10),
        lease_margin: Duration::from_secs(1),
        write_timeout: Duration::from_secs(12),
        handover_wait_max: Duration::from_secs(8),
        mirror_age_max: Duration::from_secs(60),
    };

    fn lease(instance: u128, confirmed: u64, beat: u64) -> Lease {
        Lease { instance: Uuid::from_u128(instance), confirmed, beat, felt_permille: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_is_gone_only_when_its_beat_has_stood_still_for_longer_than_it_serves() {
        let mut watch = Watch::new(&TIMING);
        let start = Instant::now();
        watch.look(&[lease(1, 5, 1), lease(2, 4, 1)], start);
        assert_eq!(watch.followers(5, start).behind, [Uuid::from_u128(2)]);
        let later = start + TIMING.lease;
        watch.look(&[lease(1, 5, 2), lease(2, 4, 2)], later);
        assert_eq!(watch.followers(5, later + TIMING.lease).behind, [Uuid::from_u128(2)]);
        let gone = watch.followers(5, later + TIMING.lease + TIMING.lease_margin + TIMING.beat);
        assert_eq!((gone.behind.len(), gone.gone.len()), (0, 1));
        assert_eq!(gone.settled_for, Some(Duration::ZERO));
        // It comes back.
        let back = later + 2 * TIMING.lease;
        watch.look(&[lease(1, 5, 3), lease(2, 4, 3)], back);
        assert_eq!(watch.followers(5, back).settled_for, None);
    }

    /// Somebody who has confirmed and then died would be waited for by all as soon as there is something else to confirm.
    #[tokio::test(start_paused = true)]
    async fn somebody_who_says_nothing_is_noticed_until_nothing_of_his_can_arrive() {
        let mut watch = Watch::new(&TIMING);
        let start = Instant::now();
        watch.look(&[lease(1, 5, 1)], start);
        let silent = |watch: &mut Watch, after| watch.followers(5, start + after).is_anyone_silent;
        assert!(!silent(&mut watch, TIMING.beat));
        assert!(silent(&mut watch, TIMING.lease));
        let over = TIMING.lease + TIMING.lease_margin + TIMING.write_timeout;
        assert!(silent(&mut watch, over));
        assert!(!silent(&mut watch, over + TIMING.beat));
    }

    #[tokio::test(start_paused = true)]
    async fn shoppers_of_all_who_are_there_are_felt() {
        let mut watch = Watch::new(&TIMING);
        let start = Instant::now();
        watch.look(&[Lease { felt_permille: 1_200, ..lease(1, 5, 1) }, lease(2, 5, 1)], start);
        assert_eq!(watch.felt_permille(Uuid::nil(), start), 1_200);
        assert_eq!(watch.felt_permille(Uuid::from_u128(1), start), 0);
        let later = start + TIMING.lease;
        watch.look(&[Lease { felt_permille: 1_200, ..lease(1, 5, 1) }, lease(2, 5, 2)], later);
        assert_eq!(watch.felt_permille(Uuid::nil(), later), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn all_have_settled_since_the_last_one_did() {
        let mut watch = Watch::new(&TIMING);
        let start = Instant::now();
        watch.look(&[lease(1, 5, 1)], start);
        assert_eq!(watch.followers(5, start).settled_for, Some(Duration::ZERO));
        assert_eq!(watch.followers(5, start + TIMING.beat).settled_for, Some(TIMING.beat));
        // An epoch later nobody has yet.
        assert_eq!(watch.followers(6, start + TIMING.beat).settled_for, None);
    }
}
