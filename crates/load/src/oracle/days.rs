//! ORD-1 in the lists of days, which operators read: every acknowledged order stands in that of its day.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

use mobimir_core::time::{Day, Timestamp};
use serde::Deserialize;

use super::{Check, Wrong, orders::follows};
use crate::{
    crowd::{Crowd, Placed},
    request::Parts,
    rules::{Checks, Example, Rule},
    shop::{Progress, ShopError, lists},
    wire::Wire,
};

const LIST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct ListedOrder {
    order_id: String,
    created_at: Timestamp,
    geo_zone: String,
}

/// What was read of a list so far.
#[derive(Default)]
struct Walked {
    ids: HashSet<String>,
    last: Option<(Timestamp, String)>,
}

/// Looks for every acknowledged order until it is there, or for so long. Of what else stands in the lists nothing is kept.
pub(super) fn days(
    wire: &mut Wire,
    crowd: &Crowd,
    operator: &str,
    patience: Duration,
    checks: &mut Checks,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<Check, ShopError> {
    let until = Instant::now() + patience;
    let mut missing: HashMap<&str, &Placed> = crowd.placed.iter().map(|order| (&*order.id, order)).collect();
    loop {
        strike_out(wire, crowd, operator, &mut missing, checks, progress)?;
        if missing.is_empty() || Instant::now() >= until {
            break;
        }
        std::thread::sleep(LIST_PAUSE);
    }
    for (id, order) in &missing {
        let day = order.created_at.day();
        wrong.tell(|| format!("ORD-1: the acknowledged order {id} is not in the list of {day}"));
    }
    Ok(Check { looked_at: crowd.placed.len() as u64, wrong: missing.len() as u64 })
}

/// Reads the list of every day and zone that something is missing from, the newest first, as far back as it is. The zones
/// are read at the same time.
fn strike_out(
    wire: &mut Wire,
    crowd: &Crowd,
    operator: &str,
    missing: &mut HashMap<&str, &Placed>,
    checks: &mut Checks,
    progress: Progress<'_>,
) -> Result<(), ShopError> {
    let mut oldest: BTreeMap<(Day, u16), Timestamp> = BTreeMap::new();
    for order in missing.values() {
        let oldest = oldest.entry((order.created_at.day(), order.zone)).or_insert(order.created_at);
        *oldest = order.created_at.min(*oldest);
    }
    let oldest: Vec<((Day, u16), Timestamp)> = oldest.into_iter().collect();
    let mut walked: Vec<Walked> = oldest.iter().map(|_| Walked::default()).collect();
    lists(
        wire,
        "reading the lists of days",
        oldest.len(),
        progress,
        |list| {
            let ((day, zone), _) = oldest[list];
            format!("/v1/reports/orders?day={day}&geo_zone={}&", crowd.zones[usize::from(zone)])
        },
        |_| Parts::of(operator),
        |list, orders: Vec<ListedOrder>| {
            let ((day, zone), oldest) = oldest[list];
            let zone = &crowd.zones[usize::from(zone)];
            let goes_on = orders.last().is_some_and(|order| order.created_at >= oldest);
            for order in orders {
                missing.remove(order.order_id.as_str());
                walked[list].take(order, day, zone, checks);
            }
            goes_on
        },
    )
}

impl Walked {
    /// The next row of the list.
    fn take(&mut self, order: ListedOrder, day: Day, zone: &str, checks: &mut Checks) {
        let ListedOrder { order_id, created_at, geo_zone } = order;
        let request = || format!("GET /v1/reports/orders?day={day}&geo_zone={zone}, all pages");
        let fits = created_at.day() == day && geo_zone == *zone;
        checks.check(Rule::DayListFilter, fits, || Example {
            request: request(),
            expected: "orders of this day and zone".to_owned(),
            got: format!("{order_id} of {created_at} in {geo_zone}"),
        });
        checks.check(Rule::DayListUnique, self.ids.insert(order_id.clone()), || Example {
            request: request(),
            expected: "every order once".to_owned(),
            got: format!("{order_id} twice"),
        });
        let place = (created_at, order_id);
        let sorted = self.last.as_ref().is_none_or(|last| follows(last, &place));
        checks.check(Rule::DayListSorted, sorted, || Example {
            request: request(),
            expected: "the newest order first, equal times by id".to_owned(),
            got: format!("{} of {} after {:?}", place.1, place.0, self.last),
        });
        self.last = Some(place);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        crowd::Shopper,
        goods::tests::goods,
        profile::Profile,
        test_server::{Act, TestServer},
    };

    /// What is found in lists of two pages, the second of which ends with an order that is older than all.
    fn looked_for(ids: &[&str]) -> (Check, Wrong) {
        let server = TestServer::start(Arc::new(|number, _| match number % 3 {
            0 => Act::Answer(
                r#"{"items":[{"order_id":"c","geo_zone":"MSK","created_at":"2026-11-27T18:00:03Z"}],
                    "next":"one more"}"#,
            ),
            1 => Act::Answer(
                r#"{"items":[{"order_id":"b","geo_zone":"MSK","created_at":"2026-11-27T18:00:02Z"},
                    {"order_id":"before","geo_zone":"MSK","created_at":"2026-11-27T17:00:00Z"}],
                    "next":"never asked for"}"#,
            ),
            _ => Act::HangUp,
        }));
        let mut wire =
            Wire::connect(server.address, "shop", 1, Duration::from_secs(60)).expect("a connection");
        let profile = Profile::built_in("browsing").expect("a profile");
        let shoppers = vec![Shopper::new("token".to_owned(), Some("{}".to_owned()), 0)];
        let mut crowd = Crowd::new(profile, goods(10), vec!["MSK".to_owned()], shoppers, "run".to_owned(), 1);
        crowd.placed = ids
            .iter()
            .map(|id| Placed {
                id: (*id).into(),
                shopper: 0,
                zone: 0,
                lines: Box::default(),
                digest: 0,
                created_at: Timestamp::parse("2026-11-27T18:00:01Z").expect("a time"),
            })
            .collect();
        let mut wrong = Wrong::default();
        let mut checks = Checks::default();
        let check =
            days(&mut wire, &crowd, "operator", Duration::ZERO, &mut checks, &mut wrong, &mut |_, _, _| {});
        assert_eq!((checks.wrong(), checks.by_name()["day_list_unique"].checked), (0, 3));
        (check.expect("answers"), wrong)
    }

    #[test]
    fn every_order_is_in_the_list_of_its_day() {
        assert_eq!(looked_for(&["b", "c"]).0, Check { looked_at: 2, wrong: 0 });
    }

    #[test]
    fn an_order_that_is_in_no_list_is_told() {
        let (check, wrong) = looked_for(&["c", "lost"]);
        assert_eq!(check, Check { looked_at: 2, wrong: 1 });
        assert_eq!(wrong.examples, ["ORD-1: the acknowledged order lost is not in the list of 2026-11-27"]);
    }
    #[test]
    fn a_row_of_a_day_is_there_once_in_its_place() {
        let mut checks = Checks::default();
        let (day, mut walked) = (Day::parse("2026-11-27").expect("a day"), Walked::default());
        let mut take = |id: &str, at: &str, zone: &str| {
            let created_at = Timestamp::parse(at).expect("a time");
            let order = ListedOrder { order_id: id.to_owned(), created_at, geo_zone: zone.to_owned() };
            walked.take(order, day, "MSK", &mut checks);
            let wrong = |name: &str| checks.by_name()[name].wrong;
            [wrong("day_list_unique"), wrong("day_list_sorted"), wrong("day_list_filter")]
        };
        assert_eq!(take("b", "2026-11-27T18:00:02Z", "MSK"), [0, 0, 0]);
        assert_eq!(take("a", "2026-11-27T18:00:01Z", "MSK"), [0, 0, 0]);
        assert_eq!(take("a", "2026-11-27T18:00:01Z", "MSK"), [1, 0, 0]);
        assert_eq!(take("c", "2026-11-27T18:00:02Z", "MSK"), [1, 1, 0]);
        assert_eq!(take("d", "2026-11-27T18:00:01Z", "SPB"), [1, 1, 1]);
        assert_eq!(take("e", "2026-11-26T18:00:01Z", "MSK"), [1, 1, 2]);
    }
}
