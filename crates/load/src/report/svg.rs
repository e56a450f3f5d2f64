//! Charts as SVG: lines over time and bars side by side, drawn without a library. Colours come from the page's style,
//! by class.

use std::fmt;

use super::wording::{grouped, ms_of, shortened};

const WIDTH: f64 = 720.0;
const LINES_HEIGHT: f64 = 290.0;
const LEFT: f64 = 60.0;
const BARS_LEFT: f64 = 112.0;
/// Bars have their value at the end.
const BARS_RIGHT: f64 = 660.0;
const RIGHT: f64 = 704.0;
const TOP: f64 = 50.0;
/// For the ticks and the name of the axis below the plot.
const BELOW: f64 = 44.0;
const BAR_HEIGHT: f64 = 11.0;
const BAR_GROUP_GAP: f64 = 10.0;
const TICKS_ABOUT: f64 = 5.0;
const LOG_TICKS_MAX: usize = 7;
/// A logarithm of nothing does not exist: this is a microsecond, in milliseconds.
const LOG_VALUE_MIN: f64 = 0.001;
const CHAR_WIDTH: f64 = 6.6;
const MARK_CHARS_MAX: usize = 30;
/// Labels of marks stand on so many lines in turn, so that neighbours do not cover each other.
const MARK_LEVELS: usize = 4;

/// Values over time.
pub struct LineChart<'a> {
    /// Different for each chart on a page.
    pub id: &'a str,
    pub title: &'a str,
    pub description: String,
    pub unit: &'a str,
    pub scale: Scale,
    pub lasts_s: f64,
    pub lines: Vec<Line>,
    pub limit: Option<Limit>,
    pub marks: &'a [Mark],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Logarithmic,
}

pub struct Line {
    /// A name of ours, which is a class as well.
    pub name: &'static str,
    /// Where a value is missing the line is interrupted.
    pub points: Vec<(f64, Option<f64>)>,
}

/// A value that should not be exceeded.
pub struct Limit {
    pub value: f64,
    pub label: String,
}

/// Something that happened.
pub struct Mark {
    pub at_s: f64,
    pub label: String,
}

/// Values side by side, on a logarithmic axis.
pub(super) struct BarChart<'a> {
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    pub(super) description: String,
    pub(super) unit: &'a str,
    /// Names of ours, which are classes as well.
    pub(super) kinds: &'a [&'static str],
    /// As many values as there are kinds.
    pub(super) groups: Vec<(String, Vec<f64>)>,
}

/// Text that cannot be taken for markup.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for LineChart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = || self.lines.iter().flat_map(|line| line.points.iter().filter_map(|(_, value)| *value));
        let limit = self.limit.iter().map(|limit| limit.value);
        let time = Axis::of_time(self.lasts_s);
        let axis = match self.scale {
            Scale::Linear => Axis::linear(values().chain(limit)),
            Scale::Logarithmic => Axis::logarithmic(values().chain(limit)),
        };
        let bottom = LINES_HEIGHT - BELOW;
        let x = |at_s: f64| LEFT + time.share(at_s) * (RIGHT - LEFT);
        let y = |value: f64| bottom - axis.share(value) * (bottom - TOP);
        begin(f, self.id, self.title, &self.description, LINES_HEIGHT)?;
        write_legend(f, self.lines.iter().map(|line| line.name))?;
        writeln!(f, r#"<text class="unit" x="8" y="38">{}</text>"#, Escaped(self.unit))?;
        for tick in &axis.ticks {
            let y = y(tick.value);
            writeln!(f, r#"<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/>"#)?;
            writeln!(
                f,
                r#"<text class="end" x="{:.1}" y="{:.1}">{}</text>"#,
                LEFT - 6.0,
                y + 4.0,
                tick.label
            )?;
        }
        for tick in &time.ticks {
            let x = x(tick.value);
            writeln!(
                f,
                r#"<line class="tick" x1="{x:.1}" x2="{x:.1}" y1="{bottom:.1}" y2="{:.1}"/>"#,
                bottom + 4.0
            )?;
            writeln!(f, r#"<text class="middle" x="{x:.1}" y="{:.1}">{}</text>"#, bottom + 17.0, tick.label)?;
        }
        let middle = (LEFT + RIGHT) / 2.0;
        writeln!(f, r#"<text class="unit middle" x="{middle:.1}" y="{:.1}">time, s</text>"#, bottom + 35.0)?;
        for (number, mark) in self.marks.iter().enumerate() {
            write_mark(f, mark, number % MARK_LEVELS, x(mark.at_s), bottom)?;
        }
        if let Some(limit) = &self.limit {
            let y = y(limit.value);
            writeln!(f, r#"<line class="limit" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/>"#)?;
            let label = Escaped(&limit.label);
            writeln!(f, r#"<text class="end" x="{RIGHT}" y="{:.1}">{label}</text>"#, y - 4.0)?;
        }
        for line in &self.lines {
            write_line(f, line, x, y)?;
        }
        if values().next().is_none() {
            let y = (TOP + bottom) / 2.0;
            writeln!(f, r#"<text class="middle" x="{middle:.1}" y="{y:.1}">nothing was measured</text>"#)?;
        }
        writeln!(f, "</svg>")
    }
}

impl fmt::Display for BarChart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group_height = self.kinds.len() as f64 * BAR_HEIGHT + BAR_GROUP_GAP;
        let bottom = TOP + group_height * self.groups.len().max(1) as f64;
        let values = || self.groups.iter().flat_map(|(_, values)| values.iter().copied());
        // The smallest bar has a length as well.
        let axis = Axis::logarithmic(values().flat_map(|value| [value, value / 2.0]));
        let x = |value: f64| BARS_LEFT + axis.share(value) * (BARS_RIGHT - BARS_LEFT);
        begin(f, self.id, self.title, &self.description, bottom + BELOW)?;
        write_legend(f, self.kinds.iter().copied())?;
        for tick in &axis.ticks {
            let x = x(tick.value);
            writeln!(
                f,
                r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{bottom:.1}"/>"#,
                TOP - 6.0
            )?;
            writeln!(f, r#"<text class="middle" x="{x:.1}" y="{:.1}">{}</text>"#, bottom + 17.0, tick.label)?;
        }
        let middle = (BARS_LEFT + BARS_RIGHT) / 2.0;
        let unit = Escaped(self.unit);
        writeln!(f, r#"<text class="unit middle" x="{middle:.1}" y="{:.1}">{unit}</text>"#, bottom + 35.0)?;
        for (number, (name, values)) in self.groups.iter().enumerate() {
            let top = TOP + group_height * number as f64;
            let y = top + (group_height - BAR_GROUP_GAP) / 2.0 + 4.0;
            writeln!(
                f,
                r#"<text class="end" x="{:.1}" y="{y:.1}">{}</text>"#,
                BARS_LEFT - 6.0,
                Escaped(name)
            )?;
            for (row, (kind, value)) in self.kinds.iter().zip(values).enumerate() {
                let (y, width) = (top + BAR_HEIGHT * row as f64, x(*value) - BARS_LEFT);
                writeln!(
                    f,
                    r#"<rect class="bar {kind}" x="{BARS_LEFT}" y="{y:.1}" width="{width:.1}" height="{:.1}"/>"#,
                    BAR_HEIGHT - 2.0
                )?;
                let (x, y, label) = (BARS_LEFT + width + 4.0, y + BAR_HEIGHT - 2.5, ms_of(*value));
                writeln!(f, r#"<text class="small" x="{x:.1}" y="{y:.1}">{label}</text>"#)?;
            }
        }
        if self.groups.is_empty() {
            let y = (TOP + bottom) / 2.0;
            writeln!(f, r#"<text class="middle" x="{middle:.1}" y="{y:.1}">nothing was measured</text>"#)?;
        }
        writeln!(f, "</svg>")
    }
}

fn begin(f: &mut fmt::Formatter<'_>, id: &str, title: &str, description: &str, height: f64) -> fmt::Result {
    let (id, title, description) = (Escaped(id), Escaped(title), Escaped(description));
    writeln!(
        f,
        r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-labelledby="{id}-title {id}-description">"#
    )?;
    writeln!(f, r#"<title id="{id}-title">{title}</title>"#)?;
    writeln!(f, r#"<desc id="{id}-description">{description}</desc>"#)
}

fn write_legend(f: &mut fmt::Formatter<'_>, names: impl Iterator<Item = &'static str>) -> fmt::Result {
    const SAMPLE: f64 = 22.0;
    let mut x = LEFT;
    for name in names {
        let end = x + SAMPLE;
        writeln!(f, r#"<line class="line {name}" x1="{x:.1}" x2="{end:.1}" y1="14" y2="14"/>"#)?;
        writeln!(f, r#"<text x="{:.1}" y="18">{name}</text>"#, end + 5.0)?;
        x = end + 5.0 + name.len() as f64 * CHAR_WIDTH + 18.0;
    }
    Ok(())
}

/// A line from top to bottom, with its label on the side where there is more room.
fn write_mark(f: &mut fmt::Formatter<'_>, mark: &Mark, level: usize, x: f64, bottom: f64) -> fmt::Result {
    let label = shortened(&mark.label, MARK_CHARS_MAX);
    let (class, label_x) = if x > (LEFT + RIGHT) / 2.0 { ("end", x - 4.0) } else { ("begin", x + 4.0) };
    let y = TOP + 10.0 + 13.0 * level as f64;
    writeln!(f, r#"<g class="mark"><title>{}</title>"#, Escaped(&mark.label))?;
    writeln!(f, r#"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom:.1}"/>"#)?;
    writeln!(f, r#"<text class="small {class}" x="{label_x:.1}" y="{y:.1}">{}</text></g>"#, Escaped(&label))
}

fn write_line(
    f: &mut fmt::Formatter<'_>,
    line: &Line,
    x: impl Fn(f64) -> f64,
    y: impl Fn(f64) -> f64,
) -> fmt::Result {
    let name = line.name;
    for piece in line.points.split(|(_, value)| value.is_none()) {
        let points: Vec<(f64, f64)> =
            piece.iter().filter_map(|(at_s, value)| Some((x(*at_s), y((*value)?)))).collect();
        match points.as_slice() {
            [] => {}
            // A line of one point is not to be seen.
            [(x, y)] => writeln!(f, r#"<circle class="dot {name}" cx="{x:.1}" cy="{y:.1}" r="2.5"/>"#)?,
            points => {
                let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                writeln!(f, r#"<polyline class="line {name}" points="{}"/>"#, points.join(" "))?;
            }
        }
    }
    Ok(())
}

/// From a value to its place.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<Tick>,
}

#[derive(Clone, Debug, PartialEq)]
struct Tick {
    value: f64,
    label: String,
}

impl Axis {
    /// Ends where the time does.
    fn of_time(lasts_s: f64) -> Self {
        let high = if lasts_s > 0.0 { lasts_s } else { 1.0 };
        let mut ticks = linear_ticks(high);
        ticks.retain(|tick| tick.value <= high * (1.0 + 1e-9));
        Self { scale: Scale::Linear, low: 0.0, high, ticks }
    }

    /// From 0 to a round value.
    fn linear(values: impl Iterator<Item = f64>) -> Self {
        let ticks = linear_ticks(values.fold(0.0, f64::max));
        let high = ticks.last().map_or(1.0, |tick| tick.value);
        Self { scale: Scale::Linear, low: 0.0, high, ticks }
    }

    /// From a round value to a round value.
    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let range = values.map(|value| value.max(LOG_VALUE_MIN)).fold(None, |range, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        });
        let (low, high) = range.unwrap_or((1.0, 10.0));
        let ticks = log_ticks(low, high);
        let low = ticks.first().map_or(low, |tick| tick.value);
        let high = ticks.last().map_or(high, |tick| tick.value);
        Self { scale: Scale::Logarithmic, low, high, ticks }
    }

    /// 0 at the beginning of the axis, 1 at its end.
    fn share(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value.max(LOG_VALUE_MIN) / self.low).ln() / (self.high / self.low).ln(),
        };
        share.clamp(0.0, 1.0)
    }
}

impl Tick {
    fn new(value: f64, exponent: i32) -> Self {
        let places = usize::try_from(-exponent).unwrap_or(0);
        Self { value, label: grouped(&format!("{value:.places$}")) }
    }
}

/// In steps of 1, 2 or 5 times a power of ten, from 0 to the first that is not below `max`.
fn linear_ticks(max: f64) -> Vec<Tick> {
    let max = if max > 0.0 { max } else { 1.0 };
    let wanted = max / TICKS_ABOUT;
    let exponent = wanted.log10().floor() as i32;
    let (digit, exponent) = match wanted / 10f64.powi(exponent) {
        ..1.000_001 => (1.0, exponent),
        ..2.000_001 => (2.0, exponent),
        ..5.000_001 => (5.0, exponent),
        _ => (1.0, exponent + 1),
    };
    let step = digit * 10f64.powi(exponent);
    let steps = (max / step - 1e-6).ceil() as u32;
    (0..=steps).map(|number| Tick::new(f64::from(number) * step, exponent)).collect()
}

/// 1, 2 and 5 times the powers of ten, or the powers alone where that is too many: from the last that is not above
/// `low` to the first that is not below `high`, two at least.
fn log_ticks(low: f64, high: f64) -> Vec<Tick> {
    let all = ticks_around(low, high, &[1.0, 2.0, 5.0]);
    if all.len() <= LOG_TICKS_MAX { all } else { ticks_around(low, high, &[1.0]) }
}

fn ticks_around(low: f64, high: f64, digits: &[f64]) -> Vec<Tick> {
    // One more on both sides, for what rounding may do.
    let exponents = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 + 1;
    let ticks: Vec<Tick> = exponents
        .flat_map(|exponent| {
            digits.iter().map(move |digit| Tick::new(digit * 10f64.powi(exponent), exponent))
        })
        .collect();
    let (low, high) = (low * (1.0 + 1e-9), high * (1.0 - 1e-9));
    let first = ticks.iter().rposition(|tick| tick.value <= low).unwrap_or(0);
    let last = ticks.iter().position(|tick| tick.value >= high).unwrap_or(ticks.len() - 1);
    ticks[first..=last.max(first + 1)].to_vec()
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            c => write!(f, "{c}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        for (max, expected) in [
            (0.0, vec!["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (3.0, vec!["0", "1", "2", "3"]),
            (10.0, vec!["0", "2", "4", "6", "8", "10"]),
            (0.03, vec!["0.00", "0.01", "0.02", "0.03"]),
            (2_350.0, vec!["0", "500", "1,000", "1,500", "2,000", "2,500"]),
            (3_600.0, vec!["0", "1,000", "2,000", "3,000", "4,000"]),
        ] {
            assert_eq!(labels(&linear_ticks(max)), expected, "{max}");
        }
        assert_eq!(labels(&Axis::of_time(3_600.0).ticks), ["0", "1,000", "2,000", "3,000"]);
        assert_eq!(labels(&Axis::of_time(0.0).ticks).len(), 6);
    }

    #[test]
    fn logarithmic_ticks_are_round() {
        for (low, high, expected) in [
            (1.0, 10.0, vec!["1", "2", "5", "10"]),
            (0.85, 1.9, vec!["0.5", "1", "2"]),
            (3.0, 3.0, vec!["2", "5"]),
            (5.0, 5.0, vec!["5", "10"]),
            (0.02, 700.0, vec!["0.01", "0.1", "1", "10", "100", "1,000"]),
            (0.001, 0.001, vec!["0.001", "0.002"]),
        ] {
            assert_eq!(labels(&log_ticks(low, high)), expected, "{low} to {high}");
        }
        assert!(log_ticks(0.001, 600_000.0).len() <= 11);
    }

    #[test]
    fn places_lie_on_the_axis() {
        let axis = Axis::logarithmic([1.0, 100.0].into_iter());
        assert_eq!((axis.share(1.0), axis.share(100.0)), (0.0, 1.0));
        assert!((axis.share(10.0) - 0.5).abs() < 1e-9);
        assert_eq!(axis.share(0.0), 0.0);
        let axis = Axis::linear(std::iter::empty());
        assert_eq!((axis.share(0.5), axis.share(9.0)), (0.5, 1.0));
    }

    #[test]
    fn nothing_from_outside_is_markup() {
        let evil = r#"</text><script>alert("1")</script>&'"#;
        assert_eq!(
            Escaped(evil).to_string(),
            "&lt;/text&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;"
        );
        let marks = [Mark { at_s: 1.0, label: evil.to_owned() }];
        let svg = chart(vec![(0.5, Some(1.0))], &marks).to_string();
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "{svg}");
    }

    #[test]
    fn a_line_is_interrupted_where_nothing_was_measured() {
        let points = vec![(0.5, Some(1.0)), (1.5, Some(2.0)), (2.5, None), (3.5, Some(3.0))];
        let svg = chart(points, &[]).to_string();
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (1, 1));
        assert!(!svg.contains("nothing was measured"));
    }

    #[test]
    fn a_chart_of_nothing_says_so() {
        assert!(chart(Vec::new(), &[]).to_string().contains("nothing was measured"));
        let bars = BarChart {
            id: "bars",
            title: "bars",
            description: String::new(),
            unit: "ms",
            kinds: &["p50"],
            groups: Vec::new(),
        };
        let svg = bars.to_string();
        assert!(svg.contains("nothing was measured") && !svg.contains("NaN"), "{svg}");
    }

    fn chart(points: Vec<(f64, Option<f64>)>, marks: &[Mark]) -> LineChart<'_> {
        LineChart {
            id: "chart",
            title: "a chart",
            description: "of a line".to_owned(),
            unit: "ms",
            scale: Scale::Logarithmic,
            lasts_s: 4.0,
            lines: vec![Line { name: "p99", points }],
            limit: Some(Limit { value: 5.0, label: "limit 5 ms".to_owned() }),
            marks,
        }
    }
}
