use forebay::*;
use forebay::digest::Digest;
#[tokio::test]
async fn smoke() {
    let s = Session::new();
    s.execute("CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '/work/shared/data/photos/clothing_small/train';
     CREATE PIPELINE train AS SELECT label, label * 2 AS n, path FROM photos WHERE label > 2 SHUFFLE WITHIN 100 ROWS SEED 42 SKIP 3 TAKE 200 BATCH 16 DROP REMAINDER REPEAT 2").await.unwrap();
    let mut first = None;
    for threads in [1, 2] {
        let mut run = s.run("train", RunConfig { threads: Some(threads), ..Default::default() }).await.unwrap();
        let mut d = Digest::new();
        let mut n = 0;
        while let Some(b) = run.next().await { let b = b.unwrap(); d.update(&b.batch).unwrap(); n += 1; if n == 1 { println!("{}", arrow::util::pretty::pretty_format_batches(&[b.batch]).unwrap()); } }
        println!("{n} {:?} {}", run.stats(), d.finish());
        let d = d.finish();
        assert_eq!(*first.get_or_insert(d.clone()), d);
    }
    for o in s.execute("EXPLAIN ANALYZE PIPELINE train; SHOW PIPELINES; SELECT label, count(*) FROM train GROUP BY label; SELECT label, path FROM photos LIMIT 3").await.unwrap() {
        match o { Outcome::Text(t) => println!("{t}"), Outcome::Done(t) => println!("{t}"), Outcome::Table(_, b) => println!("{}", arrow::util::pretty::pretty_format_batches(&b).unwrap()) }
    }
}
