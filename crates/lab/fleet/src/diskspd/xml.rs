//! The XML of DISKSPD's results. Everything is written through [`Writer`], so that it is well-formed whatever the texts contain.

use super::{deviation, percentiles};
use crate::report::{FleetReport, FleetRun};
use workload::processors::ProcessorUse;

/// Elements with text, and elements with elements.
struct Writer {
    out: String,
    open: Vec<&'static str>,
}

impl Writer {
    fn new() -> Writer {
        Writer { out: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned(), open: Vec::new() }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(&"  ".repeat(self.open.len()));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// An element with what `inside` writes.
    fn with(&mut self, name: &'static str, inside: impl FnOnce(&mut Writer)) {
        self.line(&format!("<{name}>"));
        self.open.push(name);
        inside(self);
        self.open.pop();
        self.line(&format!("</{name}>"));
    }

    /// An element with a text.
    fn text(&mut self, name: &'static str, text: impl ToString) {
        let text = escaped(&text.to_string());
        self.line(&format!("<{name}>{text}</{name}>"));
    }

    /// An element with a number that has a fraction.
    fn number(&mut self, name: &'static str, number: f64, digits: usize) {
        self.text(name, format!("{number:.digits$}"));
    }
}

/// A text without what XML does not allow: characters with a meaning are replaced, control characters left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(character),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {}
            character => out.push(character),
        }
    }
    out
}

/// The runs as DISKSPD's XML.
pub fn to_xml(report: &FleetReport) -> String {
    let mut xml = Writer::new();
    xml.with("Results", |xml| {
        xml.with("System", |xml| {
            xml.text("ComputerName", &report.machine.cpu);
            xml.with("Tool", |xml| {
                xml.text("Name", "terrace bench fleet");
                xml.text("Version", report.version);
            });
            xml.text("ProcessorCount", report.machine.cores);
        });
        xml.with("Profile", |xml| profile(report, xml));
        for run in &report.runs {
            xml.with("TimeSpan", |xml| time_span(xml, run));
        }
    });
    xml.out
}

fn profile(report: &FleetReport, xml: &mut Writer) {
    xml.text("Progress", 0);
    xml.text("ResultFormat", "xml");
    xml.text("Verbose", false);
    let config = &report.config;
    xml.with("TimeSpans", |xml| {
        for run in &report.runs {
            xml.with("TimeSpan", |xml| {
                xml.text("Comment", &run.name);
                xml.text("MeasureLatency", true);
                xml.text("CalculateIopsStdDev", true);
                xml.text("DisableAffinity", true);
                xml.number("Duration", run.seconds, 0);
                xml.number("Warmup", config.warm_seconds, 0);
                xml.number("Cooldown", config.cool_seconds, 0);
                xml.text("ThreadCount", 0);
                xml.text("RequestCount", 0);
                xml.text("IoBucketDuration", 1000);
                xml.text("RandSeed", config.seed);
                xml.with("Targets", |xml| (0..run.volumes).for_each(|volume| target(report, xml, run, volume)));
            });
        }
    });
}

fn target(report: &FleetReport, xml: &mut Writer, run: &FleetRun, volume: usize) {
    xml.with("Target", |xml| {
        xml.text("Path", path(run, volume));
        xml.text("BlockSize", run.block_bytes);
        xml.text("BaseFileOffset", 0);
        xml.text("SequentialScan", false);
        xml.text("RandomAccess", run.detail.is_random);
        xml.text("TemporaryFile", false);
        xml.text("UseLargePages", false);
        xml.text("DisableOSCache", true);
        xml.text("WriteThrough", true);
        xml.text("ParallelAsyncIO", false);
        xml.text("FileSize", report.config.layout.bytes);
        xml.text(if run.detail.is_random { "Random" } else { "StrideSize" }, run.block_bytes);
        xml.text("InterlockedSequential", false);
        xml.text("ThreadStride", 0);
        xml.text("MaxFileSize", 0);
        xml.text("RequestCount", run.outstanding);
        xml.text("WriteRatio", 100 - run.read_percent);
        xml.text("ThreadsPerFile", run.threads);
    });
}

/// The name of a target.
pub(super) fn path(run: &FleetRun, volume: usize) -> String {
    format!("{}:{}-{volume}", run.path, run.device)
}

fn time_span(xml: &mut Writer, run: &FleetRun) {
    xml.number("TestTimeSeconds", run.seconds, 2);
    xml.text("ThreadCount", run.detail.threads.len());
    xml.text("RequestCount", 0);
    xml.text("ProcCount", run.detail.processors.len());
    xml.with("CpuUtilization", |xml| {
        for processor in &run.detail.processors {
            xml.with("CPU", |xml| {
                xml.text("Group", 0);
                xml.text("Id", processor.number);
                utilization(xml, processor);
            });
        }
        xml.with("Average", |xml| utilization(xml, &ProcessorUse::mean(&run.detail.processors)));
    });
    xml.with("Latency", |xml| latency(xml, run));
    xml.with("Iops", |xml| iops(xml, run));
    for (id, thread) in run.detail.threads.iter().enumerate() {
        xml.with("Thread", |xml| {
            xml.text("Id", id);
            xml.with("Target", |xml| {
                xml.text("Path", path(run, thread.volume));
                xml.text("BytesCount", thread.read_bytes + thread.written_bytes);
                xml.text("IOCount", thread.reads + thread.writes);
                xml.text("ReadBytes", thread.read_bytes);
                xml.text("ReadCount", thread.reads);
                xml.text("WriteBytes", thread.written_bytes);
                xml.text("WriteCount", thread.writes);
            });
        });
    }
}

fn utilization(xml: &mut Writer, processor: &ProcessorUse) {
    xml.number("UsagePercent", processor.busy(), 2);
    xml.number("UserPercent", processor.user, 2);
    xml.number("KernelPercent", processor.kernel, 2);
    xml.number("IdlePercent", processor.idle, 2);
}

fn latency(xml: &mut Writer, run: &FleetRun) {
    let tally = &run.detail.tally;
    let all = tally.all();
    let named = [
        ("AverageReadMilliseconds", "ReadLatencyStdev", &tally.reads),
        ("AverageWriteMilliseconds", "WriteLatencyStdev", &tally.writes),
        ("AverageTotalMilliseconds", "LatencyStdev", &all),
    ];
    for (average, stdev, latencies) in named {
        if latencies.count() > 0 {
            xml.number(average, latencies.mean() / 1e6, 3);
            xml.number(stdev, latencies.deviation() / 1e6, 3);
        }
    }
    for ((reads, writes), all) in percentiles(&tally.reads).zip(percentiles(&tally.writes)).zip(percentiles(&all)) {
        xml.with("Bucket", |xml| {
            xml.text("Percentile", reads.1);
            for (name, ms) in
                [("ReadMilliseconds", reads.2), ("WriteMilliseconds", writes.2), ("TotalMilliseconds", all.2)]
            {
                if let Some(ms) = ms {
                    xml.number(name, ms, 3);
                }
            }
        });
    }
}

fn iops(xml: &mut Writer, run: &FleetRun) {
    let windows = &run.detail.tally.windows;
    xml.number("ReadIopsStdDev", deviation(windows, |window| window.reads), 3);
    xml.number("WriteIopsStdDev", deviation(windows, |window| window.writes), 3);
    xml.number("IopsStdDev", deviation(windows, |window| window.all()), 3);
    for (index, window) in windows.iter().enumerate() {
        xml.with("Bucket", |xml| {
            xml.text("SampleMillisecond", (index + 1) * 1000);
            xml.text("Read", window.reads);
            xml.text("Write", window.writes);
            xml.text("Total", window.all());
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::report::tests::example;

    /// Checks nesting and characters, and returns the texts of all elements by path. Only for what [`Writer`] writes: no attributes.
    fn read(xml: &str) -> Vec<(String, String)> {
        let mut rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").expect("a declaration");
        let (mut open, mut texts): (Vec<&str>, Vec<(String, String)>) = (Vec::new(), Vec::new());
        let mut roots = 0;
        while let Some(at) = rest.find('<') {
            let text = &rest[..at];
            assert!(!text.contains('>') && !text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
            let entities = text.split('&').skip(1);
            assert!(
                entities
                    .into_iter()
                    .all(|entity| ["lt;", "gt;", "amp;", "quot;"].iter().any(|e| entity.starts_with(e)))
            );
            let (tag, after) = rest[at + 1..].split_once('>').expect("a tag ends");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
                texts.push((format!("{}/{name}", open.join("/")), text.to_owned()));
            } else {
                assert!(!tag.is_empty() && tag.chars().all(char::is_alphanumeric), "{tag}");
                roots += usize::from(open.is_empty());
                open.push(tag);
            }
            rest = after;
        }
        assert!(open.is_empty() && rest.trim().is_empty() && roots == 1);
        texts
    }

    #[test]
    fn the_xml_is_well_formed_whatever_names_contain_and_its_counts_are_those_of_the_runs() {
        let mut report = example();
        report.machine.cpu = "a <b> & \"c\" \u{1}".to_owned();
        report.runs[0].name = "</TimeSpan>&".to_owned();
        let texts = read(&super::to_xml(&report));
        let of =
            |path: &str| texts.iter().filter(|text| text.0 == path).map(|text| text.1.as_str()).collect::<Vec<_>>();
        assert_eq!(of("Results/System/ComputerName"), ["a &lt;b&gt; &amp; &quot;c&quot; "]);
        assert_eq!(of("Results/TimeSpan/TestTimeSeconds"), ["5.00", "5.00"]);
        assert_eq!(of("Results/TimeSpan/Thread/Target/Path").len(), 8);
        let counts = of("Results/TimeSpan/Thread/Target/IOCount");
        let sum: u64 = counts.iter().map(|count| count.parse::<u64>().expect("a number")).sum();
        assert_eq!(sum, report.runs.iter().map(|run| run.requests).sum::<u64>());
        let buckets = of("Results/TimeSpan/Iops/Bucket/Total");
        assert_eq!(buckets.iter().map(|count| count.parse::<u64>().expect("a number")).sum::<u64>(), sum);
        assert_eq!(of("Results/TimeSpan/Latency/Bucket/Percentile").len(), 30);
        assert_eq!(of("Results/Profile/TimeSpans/TimeSpan/Targets/Target/WriteRatio"), ["10"; 4]);
    }
}
