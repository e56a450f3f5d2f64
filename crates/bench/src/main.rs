//! Measures the program as it is shipped: starts it, asks it, and prints a line a figure.
//!
//! - [`pages`]: the product page and the category page against a fixed answer of the same size;
//! - [`operations`]: what every operation of the API costs the server;
//! - [`durable`]: durable cart changes against the bare engine;
//! - [`start`]: from the start to the first answer, and the memory of an idle shop;
//! - [`generator`]: the load that the program makes, against wrk;
//! - [`friday`]: the highest rate of the Black Friday mix that keeps the limits again and again;
//! - [`overload`]: twice that rate, and what is left of it;
//! - [`flash`]: a flash sale;
//! - [`steady`]: whether ten minutes change anything;
//! - [`sizes`]: whether a large shop costs more than a small one;
//! - [`instructions`]: how many instructions the [`hot`] operations take.
//!
//! [`record`] runs all of them in one piece and keeps what they say, and [`compare`] asks two builds in turns.
//!
//! Or instead, with `--cassandra` or `--mongo`, the ports on these against the bare driver ([`cassandra`], [`mongo`]), with
//! `--cluster` a shop on both ([`cluster`]), and with `--migrate` data on its way from one to the other ([`migrate`]).

mod best;
mod cassandra;
mod catalogue;
mod cluster;
mod compare;
mod crowd;
mod durable;
mod figures;
mod flash;
mod friday;
mod generator;
mod hold;
mod hot;
mod instructions;
mod load;
mod machine;
mod migrate;
mod mongo;
mod operations;
mod overload;
mod pages;
mod past;
mod process;
mod read_past;
mod record;
mod samples;
mod scratch;
mod server;
mod sides;
mod sizes;
mod start;
mod steady;
mod wrk;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use crate::{best::Best, figures::Figures, hot::Hot, record::Recording, scratch::Scratch, server::Server};

#[derive(Parser)]
#[command(version, about = "What the shop's answers cost", after_help = NOTES)]
struct Args {
    /// Shorter rounds and fewer of them: shows that everything runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Only this group of figures; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<Group>,
    /// The program to measure [default: mobimir beside this one]
    #[arg(long, value_name = "PATH")]
    mobimir: Option<PathBuf>,
    /// With the sizes, a million products and five million orders; with --migrate, a million orders
    #[arg(long)]
    large: bool,
    /// Instead of all that: carts, orders and sessions on a ring of Cassandra, against the bare driver
    #[arg(long, group = "store", conflicts_with_all = ["only", "mobimir"])]
    cassandra: bool,
    /// Instead of all that: the ports on MongoDB against the bare driver, and what stripes give a hot product
    #[arg(long, group = "store", conflicts_with_all = ["only", "mobimir"])]
    mongo: bool,
    /// Instead of all that: a shop on three members of MongoDB and three nodes of Cassandra, as the policy `default` says
    #[arg(long, conflicts_with_all = ["only", "large", "store"])]
    cluster: bool,
    /// Instead of all that: what it costs to move data from MongoDB to Cassandra
    #[arg(long, conflicts_with_all = ["only", "mobimir", "store", "cluster"])]
    migrate: bool,
    /// With --migrate, only this part; may be given more than once
    #[arg(long, value_name = "NAME", requires = "migrate")]
    part: Vec<migrate::Part>,
    /// What --migrate starts to see how much memory it takes
    #[arg(long, hide = true, value_name = "URI")]
    move_within: Option<String>,
    /// Instead of all that: how many instructions the hot operations take, with valgrind
    #[arg(long, group = "of_hot", conflicts_with_all = ["only", "large", "store", "cluster", "migrate"])]
    instructions: bool,
    /// Instead of all that: the program and another build of it, asked for the hot operations in turns
    #[arg(long, value_name = "PATH", group = "of_hot", conflicts_with_all = ["only", "large", "store", "cluster", "migrate"])]
    compare: Option<PathBuf>,
    /// With --instructions or --compare, only this operation; may be given more than once
    #[arg(long, value_name = "NAME", requires = "of_hot")]
    hot: Vec<Hot>,
    /// All of that in one piece, and a file about it in this directory, named by day and commit
    #[arg(long, value_name = "DIR", conflicts_with_all = ["only", "large", "store", "cluster", "migrate", "of_hot"])]
    record: Option<PathBuf>,
    /// With --record, only this section; may be given more than once
    #[arg(long, value_name = "NAME", requires = "record")]
    section: Vec<record::Section>,
    /// With --cassandra or --mongo, only this operation; may be given more than once
    #[arg(long, value_name = "NAME", requires = "store")]
    operation: Vec<sides::Operation>,
}

const NOTES: &str = "\
Data is written to the directory for temporary files: set TMPDIR to the disk that is to be measured.
The exit code is 1 when a figure is short of its bar, and 2 when something could not be measured or an answer was wrong.";

pub(crate) const EXIT_SHORT: u8 = 1;
pub(crate) const EXIT_FAILED: u8 = 2;
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    Product,
    Category,
    Operations,
    Durable,
    Start,
    Generator,
    Friday,
    Overload,
    Flash,
    Steady,
    Sizes,
}

/// What is measured, where, and for how long.
pub(crate) struct Setting<'a> {
    /// The program as it is shipped.
    pub(crate) binary: &'a Path,
    pub(crate) scratch: &'a Scratch,
    pub(crate) pace: Pace,
}

/// How long to measure.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    pub(crate) warm_up: Duration,
    /// For one operation.
    pub(crate) operation: Duration,
    /// By how much numbers of requests, of orders and the like are divided.
    pub(crate) divisor: usize,
    pub(crate) starts: usize,
    pub(crate) idle: Duration,
    /// Rounds for which a whole crowd comes in first, and how long each of them sends.
    pub(crate) visits: usize,
    pub(crate) visit: Duration,
    /// At the highest rate within the limits.
    pub(crate) friday: Duration,
    /// At a rate that can go on for ever.
    pub(crate) steady: Duration,
}

impl Pace {
    fn of(quick: bool) -> Self {
        let ms = Duration::from_millis;
        match quick {
            false => Self {
                rounds: 7,
                round: ms(2_000),
                warm_up: ms(2_000),
                operation: ms(1_000),
                divisor: 1,
                starts: 5,
                idle: ms(5_000),
                visits: 3,
                visit: ms(10_000),
                friday: ms(60_000),
                steady: ms(600_000),
            },
            true => Self {
                rounds: 3,
                round: ms(300),
                warm_up: ms(200),
                operation: ms(100),
                divisor: 20,
                starts: 2,
                idle: ms(500),
                visits: 1,
                visit: ms(2_000),
                friday: ms(3_000),
                steady: ms(10_000),
            },
        }
    }

    pub(crate) fn quick(self) -> bool {
        self.divisor > 1
    }

    /// All rounds of one side together.
    pub(crate) fn measured(self) -> Duration {
        self.round * self.rounds as u32
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    run(&args).unwrap_or_else(|error| {
        eprintln!("mobimir-bench: {error:#}");
        ExitCode::from(EXIT_FAILED)
    })
}

fn run(args: &Args) -> Result<ExitCode> {
    if let Some(dir) = &args.record {
        let mobimir = args.mobimir.as_deref();
        return Recording { dir, quick: args.quick, mobimir, sections: &args.section }.run();
    }
    process::end_with_signals()?;
    let mut figures = Figures::default();
    if let Some(uri) = &args.move_within {
        figures.say(&migrate::memory::move_within(uri)?);
        return Ok(ExitCode::SUCCESS);
    }
    let scratch = Scratch::new()?;
    if args.quick {
        figures.note("a quick run: it shows that everything runs, not how fast");
    }
    if args.cassandra {
        cassandra::measure(args.quick, &args.operation, &mut figures)?;
    } else if args.mongo {
        mongo::measure(args.quick, &args.operation, &mut figures)?;
    } else if args.migrate {
        let pace = migrate::Pace { quick: args.quick, large: args.large };
        migrate::measure(pace, &args.part, &mut figures)?;
    } else {
        let binary = program(args.mobimir.as_deref())?;
        let setting = Setting { binary: &binary, scratch: &scratch, pace: Pace::of(args.quick) };
        if args.cluster {
            cluster::measure(&setting, args.quick, &mut figures)?;
        } else if args.instructions {
            instructions::measure(&setting, &args.hot, &mut figures)?;
        } else if let Some(other) = &args.compare {
            compare::measure(&setting, &program(Some(other))?, &args.hot, &mut figures)?;
        } else {
            measure_program(args, &setting, &mut figures);
        }
    }
    figures.machine(&machine::describe(&scratch)?);
    Ok(match (figures.all_measured(), figures.all_reached()) {
        (false, _) => ExitCode::from(EXIT_FAILED),
        (true, false) => ExitCode::from(EXIT_SHORT),
        (true, true) => ExitCode::SUCCESS,
    })
}

fn program(named: Option<&Path>) -> Result<PathBuf> {
    let binary = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("mobimir"),
    };
    anyhow::ensure!(
        binary.is_file(),
        "{} is not there: build mobimir, or name it with --mobimir",
        binary.display()
    );
    Ok(binary)
}

/// A group that fails does not keep the others from being measured.
fn measure_program(args: &Args, setting: &Setting<'_>, figures: &mut Figures) {
    let Setting { binary, scratch, pace } = *setting;
    let wanted = |group: Group| args.only.is_empty() || args.only.contains(&group);
    let mut best = Best::default();

    if [Group::Product, Group::Category, Group::Operations].into_iter().any(wanted) {
        measure_pages(setting, wanted, figures).unwrap_or_else(|error| figures.failed("pages", &error));
    }
    for group in Group::value_variants().iter().copied().filter(|group| wanted(*group)) {
        let measured = match group {
            // They share a shop.
            Group::Product | Group::Category | Group::Operations => Ok(()),
            Group::Durable => durable::measure_ports(scratch, pace, figures)
                .and_then(|()| durable::measure_http(binary, scratch, pace, figures)),
            Group::Start => start::measure(binary, scratch, pace, figures),
            Group::Generator => generator::measure(setting, figures),
            Group::Friday => friday::measure(setting, &mut best, figures),
            Group::Overload => overload::measure(setting, &mut best, figures),
            Group::Flash => flash::measure(setting, figures),
            Group::Steady => steady::measure(setting, &mut best, figures),
            Group::Sizes => sizes::measure(setting, args.large, figures),
        };
        let name = format!("{group:?}").to_lowercase();
        measured.unwrap_or_else(|error| figures.failed(&name, &error));
    }
}

fn measure_pages(setting: &Setting<'_>, wanted: impl Fn(Group) -> bool, figures: &mut Figures) -> Result<()> {
    let Setting { binary, scratch, pace } = *setting;
    progress("making a shop of 10,000 products");
    let server = Server::demo(binary, &scratch.dir("pages")?).context("the shop did not start")?;
    let products = catalogue::walk(&server).context("the catalogue could not be read")?;
    if wanted(Group::Product) {
        pages::product(&server, &products, pace, figures)?;
    }
    if wanted(Group::Category) {
        pages::category(&server, &products, pace, figures)?;
    }
    if wanted(Group::Operations) {
        operations::measure(&server, &products, pace, figures)?;
    }
    server.stop()
}

pub(crate) fn progress(what: &str) {
    eprintln!("... {what}");
}
