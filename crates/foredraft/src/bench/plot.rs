//! The curve T(M)/T(1) as SVG.

use std::fmt::Write;

use super::report::BenchReport;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 50.0;
const BOTTOM: f64 = 40.0;

/// Draws the curve, and beside it the line on which every row would cost a whole pass.
pub(super) fn svg(report: &BenchReport) -> String {
    let rows = report.forward.len().max(2) as f64;
    let top = report
        .forward
        .iter()
        .map(|p| p.ratio)
        .fold(2.0, f64::max)
        .ceil();
    let x = |m: f64| LEFT + (m - 1.0) / (rows - 1.0) * (WIDTH - LEFT - 20.0);
    let y = |ratio: f64| HEIGHT - BOTTOM - ratio / top * (HEIGHT - BOTTOM - 20.0);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="14">T(M)/T(1): {}, {} threads, {}</text>
"#,
        escape(&report.model),
        report.threads,
        report.cpu_path
    );
    for ratio in 0..=top as usize {
        let at = y(ratio as f64);
        let _ = writeln!(
            out,
            r##"<line x1="{LEFT}" x2="{}" y1="{at}" y2="{at}" stroke="#ddd"/><text x="24" y="{}">{ratio}</text>"##,
            WIDTH - 20.0,
            at + 4.0
        );
    }
    for point in report
        .forward
        .iter()
        .filter(|p| p.rows % 4 == 0 || p.rows == 1)
    {
        let _ = writeln!(
            out,
            r#"<text x="{}" y="{}">{}</text>"#,
            x(point.rows as f64) - 4.0,
            HEIGHT - 20.0,
            point.rows
        );
    }
    let _ = writeln!(
        out,
        r##"<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="#bbb" stroke-dasharray="4"/>"##,
        x(1.0),
        y(1.0),
        x(top.min(rows)),
        y(top.min(rows))
    );
    let points: Vec<String> = report
        .forward
        .iter()
        .map(|p| format!("{:.1},{:.1}", x(p.rows as f64), y(p.ratio)))
        .collect();
    let _ = writeln!(
        out,
        r##"<polyline points="{}" fill="none" stroke="#0366d6" stroke-width="2"/>"##,
        points.join(" ")
    );
    let _ = writeln!(
        out,
        r#"<text x="{}" y="{}">M, rows of a pass</text></svg>"#,
        WIDTH / 2.0,
        HEIGHT - 4.0
    );
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
