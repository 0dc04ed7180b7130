//! `strftime` for chat templates, in UTC and in English, without a time zone database.

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |duration| {
        i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
    })
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A moment, taken apart.
struct Civil {
    year: i64,
    /// 1 to 12.
    month: i64,
    /// 1 to 31.
    day: i64,
    /// 0 (Sunday) to 6.
    weekday: i64,
    /// 1 to 366.
    day_of_year: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

/// The civil date of a moment (Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`:
/// years begin in March, so that the leap day is the last).
fn civil(unix_seconds: i64) -> Civil {
    // Beyond the year 9999 templates are not a concern; the clamp keeps the arithmetic in range.
    let seconds = unix_seconds.clamp(-62_135_596_800, 253_402_300_799);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468; // days since 0000-03-01
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_march_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_march_year + 2) / 153;
    let day = day_of_march_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let days_before =
        before.get(month as usize - 1).copied().unwrap_or(0) + i64::from(leap && month > 2);
    Civil {
        year,
        month,
        day,
        weekday: (days + 4).rem_euclid(7), // 1970-01-01 was a Thursday
        day_of_year: days_before + day,
        hour: rest / 3600,
        minute: rest / 60 % 60,
        second: rest % 60,
    }
}

/// Formats a moment as C's `strftime` does in the C locale. Directives that templates have no use for (weeks, time
/// zones by name) are left as they are.
pub(crate) fn strftime(unix_seconds: i64, format: &str) -> String {
    let t = civil(unix_seconds);
    let name = |names: &'static [&'static str], index: i64| {
        usize::try_from(index)
            .ok()
            .and_then(|index| names.get(index))
            .copied()
            .unwrap_or_default()
    };
    let month = name(&MONTHS, t.month - 1);
    let weekday = name(&DAYS, t.weekday);
    let twelve = (t.hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let Some(mut directive) = characters.next() else {
            out.push('%');
            break;
        };
        let padded = directive != '-';
        if !padded {
            directive = characters.next().unwrap_or('-');
        }
        let number = |value: i64, width: usize| {
            if padded {
                format!("{value:0width$}")
            } else {
                value.to_string()
            }
        };
        match directive {
            'Y' => out.push_str(&number(t.year, 4)),
            'y' => out.push_str(&number(t.year % 100, 2)),
            'm' => out.push_str(&number(t.month, 2)),
            'd' => out.push_str(&number(t.day, 2)),
            'e' => out.push_str(&format!("{:2}", t.day)),
            'j' => out.push_str(&number(t.day_of_year, 3)),
            'H' => out.push_str(&number(t.hour, 2)),
            'I' => out.push_str(&number(twelve, 2)),
            'M' => out.push_str(&number(t.minute, 2)),
            'S' => out.push_str(&number(t.second, 2)),
            'f' => out.push_str("000000"),
            'p' => out.push_str(if t.hour < 12 { "AM" } else { "PM" }),
            'B' => out.push_str(month),
            'b' | 'h' => out.push_str(month.get(..3).unwrap_or(month)),
            'A' => out.push_str(weekday),
            'a' => out.push_str(weekday.get(..3).unwrap_or(weekday)),
            'w' => out.push_str(&t.weekday.to_string()),
            'u' => out.push_str(&(if t.weekday == 0 { 7 } else { t.weekday }).to_string()),
            'F' => out.push_str(&strftime(unix_seconds, "%Y-%m-%d")),
            'D' => out.push_str(&strftime(unix_seconds, "%m/%d/%y")),
            'T' => out.push_str(&strftime(unix_seconds, "%H:%M:%S")),
            'R' => out.push_str(&strftime(unix_seconds, "%H:%M")),
            's' => out.push_str(&unix_seconds.to_string()),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            '%' => out.push('%'),
            other => {
                out.push('%');
                if !padded {
                    out.push('-');
                }
                out.push(other);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expectations: Python's `datetime.fromtimestamp(t, timezone.utc).strftime(...)`.
    #[test]
    fn dates_are_pythons() {
        let all = "%Y-%m-%d %H:%M:%S %A %a %B %b %j %y %I %p %w %u %-d %-m %-I %%";
        for (seconds, expected) in [
            (
                0,
                "1970-01-01 00:00:00 Thursday Thu January Jan 001 70 12 AM 4 4 1 1 12 %",
            ),
            (
                951_782_399,
                "2000-02-28 23:59:59 Monday Mon February Feb 059 00 11 PM 1 1 28 2 11 %",
            ),
            (
                951_782_400,
                "2000-02-29 00:00:00 Tuesday Tue February Feb 060 00 12 AM 2 2 29 2 12 %",
            ),
            (
                1_735_689_599,
                "2024-12-31 23:59:59 Tuesday Tue December Dec 366 24 11 PM 2 2 31 12 11 %",
            ),
            (
                1_721_995_200,
                "2024-07-26 12:00:00 Friday Fri July Jul 208 24 12 PM 5 5 26 7 12 %",
            ),
            (
                4_107_542_400,
                "2100-03-01 00:00:00 Monday Mon March Mar 060 00 12 AM 1 1 1 3 12 %",
            ),
        ] {
            assert_eq!(strftime(seconds, all), expected);
        }
        assert_eq!(strftime(0, "%Q %"), "%Q %");
        assert_eq!(strftime(i64::MAX, "%Y"), "9999");
        assert_eq!(strftime(i64::MIN, "%Y"), "0001");
    }
}
