//! Photos with damaged bytes: a crop has the same pixels, and the same photos fail, whether the plan
//! decodes the crop alone or the whole photo, and without seek indexes, with cold and with warm ones.

use std::path::Path;

use forebay::{RunConfig, Session};

use crate::common::{batches, digest, keys, photos};
use crate::draw::Draw;

/// Number of damaged photos: 48, or the value of this variable.
const PHOTOS: &str = "FOREBAY_DAMAGED_PHOTOS";

/// Functions that read a part of a photo.
const CROPS: [&str; 4] = [
    "crop(decode_image(image), 9, 5, 20, 23)",
    "center_crop(decode_image(image), 16, 16)",
    "random_resized_crop(decode_image(image), 24, 24)",
    "random_crop(hflip(decode_image(image)), 17, 12)",
];

/// Changes, inserts, removes or cuts off bytes of a file behind its first marker. Most of the changes
/// hit the coded data, which is the greatest part of a file.
fn damage(file: &mut Vec<u8>, draw: &mut Draw) {
    for _ in 0..draw.whole(1, 3) {
        let at = draw.whole(2, file.len() as u64 - 1) as usize;
        match draw.whole(0, 7) {
            0 => file.truncate(at.max(4)),
            1 => file[at] = 0xff,
            2 => drop(file.splice(at..at, [0xff, draw.whole(0xc0, 0xff) as u8])),
            3 => drop(file.drain(at..(at + draw.whole(1, 30) as usize).min(file.len() - 1))),
            _ => file[at] = draw.whole(0, 255) as u8,
        }
    }
}

fn damaged_photos(folder: &Path, count: u32) {
    photos(folder, count, 3);
    for i in 0..count {
        let path = folder.join(format!("class{}/{i:04}.jpg", i % 3));
        let mut file = std::fs::read(&path).unwrap();
        damage(&mut file, &mut Draw::new(u64::from(i)));
        std::fs::write(&path, file).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crops_of_damaged_photos_have_one_result() {
    let count = std::env::var(PHOTOS).map_or(48, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    damaged_photos(folder.path(), count);
    let session = Session::new();
    let rows = async |pixels: &str, options: &str| {
        let sql = format!(
            "CREATE OR REPLACE PIPELINE p AS SELECT {pixels} AS pixels FROM images('{}')
             SHUFFLE WITHIN 100 ROWS SEED 5 BATCH 16 REPEAT 3
             OPTIONS (on_error = 'skip', {options})",
            folder.path().display()
        );
        session.execute(&sql).await.unwrap();
        let batches = batches(&session, "p", RunConfig::default()).await.unwrap();
        (digest(&batches), keys(&batches))
    };
    for pixels in CROPS {
        let expected = rows(pixels, "optimize = 'off', index = 'off'").await;
        for options in [
            "optimize = 'off', index = 'auto'",
            "optimize = 'default', index = 'off'",
            "optimize = 'default', index = 'auto'",
        ] {
            let found = rows(pixels, options).await;
            assert!(
                found.1 == expected.1,
                "{pixels}, {options}: other photos fail"
            );
            assert_eq!(found.0, expected.0, "{pixels}, {options}");
        }
        // Some photos fail, and damaged ones are among the others.
        let strict = pixels.replace("(image)", "(image, 'strict')");
        let strict = rows(&strict, "index = 'auto'").await.1.len();
        let (kept, all) = (expected.1.len(), 3 * count as usize);
        assert!(
            strict < kept && kept < all,
            "{pixels}: {strict}, {kept} of {all}"
        );
    }
}
