//! What the committer has done since it started.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds, in jobs, of the classes that group sizes are counted in; the last class has no bound.
pub const GROUP_SIZE_BOUNDS_JOBS: [u64; 7] = [1, 2, 4, 8, 16, 64, 256];

#[derive(Debug, Default)]
pub struct EngineStats {
    /// Writes that were run.
    pub jobs: AtomicU64,
    /// Groups that wrote something, each of which cost one fsync.
    pub commits: AtomicU64,
    pub fsyncs: AtomicU64,
    /// Writes that were abandoned because their code panicked.
    pub panics: AtomicU64,
    /// Jobs of all commits together; divided by `commits`, the mean size of a group.
    pub committed_jobs: AtomicU64,
    pub group_jobs_max: AtomicU64,
    /// How many groups there were of each size ([`GROUP_SIZE_BOUNDS_JOBS`]).
    pub groups_by_size: [AtomicU64; GROUP_SIZE_BOUNDS_JOBS.len() + 1],
}

impl EngineStats {
    pub(super) fn record_commit(&self, jobs: usize) {
        let jobs = jobs as u64;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.fsyncs.fetch_add(1, Ordering::Relaxed);
        self.committed_jobs.fetch_add(jobs, Ordering::Relaxed);
        self.group_jobs_max.fetch_max(jobs, Ordering::Relaxed);
        let class = GROUP_SIZE_BOUNDS_JOBS.iter().position(|bound| jobs <= *bound);
        self.groups_by_size[class.unwrap_or(GROUP_SIZE_BOUNDS_JOBS.len())].fetch_add(1, Ordering::Relaxed);
    }
}
