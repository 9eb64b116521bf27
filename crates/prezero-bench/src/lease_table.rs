//! `prezero bench lease`, for people.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::Size;

use super::lease::{A_SECOND, MS_PER_GIB, OVER_HUGETLB, OVER_THP, P99_MS, Report, Way};

/// The table and the verdicts.
pub fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([
        "size",
        "way",
        "ms",
        "p10",
        "p90",
        "ms a GiB",
        "x lease",
        "CPU of the broker, ms",
    ]);
    let mut verdicts = vec![];
    for row in &report.sizes {
        let of =
            |way: Way| row.ways.iter().find(|(other, _)| *other == way).map(|(_, ms)| ms.median);
        for (way, spread) in &row.ways {
            let lease = match way {
                Way::OwnHugetlb => of(Way::LeaseHugetlb),
                Way::OwnThp => of(Way::LeaseHugetlb).or(of(Way::LeaseThp)),
                _ => None,
            };
            let cost = row.cost_ms.iter().find(|(other, _)| other == way);
            table.add_row([
                Size(row.bytes as usize).to_string(),
                way.name().into(),
                format!("{:.3}", spread.median),
                format!("{:.3}", spread.p10),
                format!("{:.3}", spread.p90),
                format!("{:.3}", per_gib(spread.median, row.bytes)),
                lease.map_or(String::new(), |lease| format!("{:.0}", spread.median / lease)),
                cost.map_or(String::new(), |(_, cost)| format!("{:.0}", cost.median)),
            ]);
        }
        let size = Size(row.bytes as usize);
        for (lease, own, wanted) in [
            (Way::LeaseHugetlb, Way::OwnHugetlb, OVER_HUGETLB),
            (Way::LeaseHugetlb, Way::OwnThp, OVER_THP),
            (Way::LeaseThp, Way::OwnThp, OVER_THP),
        ] {
            if let (Some(lease_ms), Some(own_ms)) = (of(lease), of(own)) {
                let times = own_ms / lease_ms;
                let verdict = if times >= wanted { "reached" } else { "missed" };
                let (lease, own) = (lease.name(), own.name());
                verdicts.push(format!(
                    "{size}: {lease} {times:.0}x {own}, wanted {wanted:.0}x: {verdict}"
                ));
            }
        }
        for lease in [Way::LeaseHugetlb, Way::LeaseThp] {
            if let Some(ms) = of(lease).map(|ms| per_gib(ms, row.bytes)) {
                let verdict = if ms <= MS_PER_GIB { "reached" } else { "missed" };
                verdicts.push(format!(
                    "{size}: {} {ms:.3} ms a GiB, wanted {MS_PER_GIB}: {verdict}",
                    lease.name()
                ));
            }
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for small in &report.small {
        let good = small.a_second >= A_SECOND && small.p99_ms <= P99_MS;
        verdicts.push(format!(
            "{} of 2M, {} clients in turn: {:.0} a second, median {:.3} ms, p99 {:.3} ms; wanted {A_SECOND:.0} and {P99_MS} ms: {}",
            small.way.name(),
            small.clients,
            small.a_second,
            small.p50_ms,
            small.p99_ms,
            if good { "reached" } else { "missed" }
        ));
    }
    let left_out: String =
        report.left_out.iter().map(|what| format!("left out: {what}\n")).collect();
    format!(
        "{}\nfrom the request to mapped and written once in each 2 MiB page; {} rounds, interleaved, medians\n\
         {left_out}{table}\n{}\n",
        report.machine,
        report.runs,
        verdicts.join("\n")
    )
}

fn per_gib(ms: f64, bytes: u64) -> f64 {
    ms / (bytes as f64 / f64::from(1 << 30))
}
