//! Files of noise that libjpeg wrote, with the pixels that it decodes from them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use forebay_jpeg::{InstructionSet, JpegHeader, PixelFormat, PixelRegion, RegionDecoder};

/// Beginning of the test files: the start of image, and both of libjpeg's quantisation tables
/// at quality 30.
const HEAD: &str = "ffd8ffdb0043001b12141714111b1716171e1c1b2028422b28252528513a3d3042605565645f555d5b6a7899\
 816a7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffdb0043011c1e1e2823284e2b2b4ea46e\
 5d6ea4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4\
 a4a4a4a4a4a4a4a4";

fn bytes(digits: &str) -> Vec<u8> {
    let digit = |d: u8| char::from(d).to_digit(16).unwrap() as u8;
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.map(|d| digit(d[0]) << 4 | digit(d[1])).collect()
}

/// Compares the decoded pixels of a file with those of libjpeg, at every level of instructions.
fn check(tail: &str, height: usize, width: usize, expected: &[u8]) {
    let file = [bytes(HEAD), bytes(tail)].concat();
    let header = JpegHeader::read(&file).unwrap();
    assert_eq!((header.height(), header.width()), (height, width));
    for simd in InstructionSet::all() {
        let mut out = vec![0; height * width * 3];
        let region = PixelRegion::whole(&header);
        let mut decoder = RegionDecoder::new(simd);
        let decoded = decoder.decode(&file, &header, region, PixelFormat::Rgb, None, &mut out);
        assert!(!decoded.unwrap().is_damaged);
        assert_eq!(out, expected, "{simd:?}");
    }
}

#[test]
fn narrow_chroma_is_repeated() {
    let tail = "ffc00011080004000403012200021101031101ffc4001500010100000000000000000000000000000003ffc4\
 001a100003000301000000000000000000000000010203041112ffc400150101010000000000000000000000\
 0000000304ffc40017110101010100000000000000000000000002002131ffda000c03010002110311003f00\
 a68da586a1638f316e6535de20000f5522edffd9";
    let pixels = [
        0, 11, 23, 42, 84, 96, 135, 192, 175, 147, 204, 187, 27, 69, 81, 60, 102, 114, 126, 183,
        166, 168, 225, 208, 114, 157, 164, 72, 115, 122, 91, 148, 129, 152, 209, 190, 138, 181,
        188, 49, 92, 99, 41, 98, 79, 116, 173, 154,
    ];
    check(tail, 4, 4, &pixels);
}

#[test]
fn rows_of_narrow_chroma_are_repeated_in_progressive_files() {
    let tail = "ffc20011080005000303012200021101031101ffc40014000100000000000000000000000000000000ffc400\
 14010100000000000000000000000000000003ffda000c03010002100310000001000fffc400141001000000\
 00000000000000000000000000ffda00080101000105027fffc4001811000203000000000000000000000000\
 000001020331ffda0008010301013f01764d3d3fffc400161101010100000000000000000000000000010011\
 ffda0008010201013f01576fffc40014100100000000000000000000000000000000ffda0008010100063f02\
 7fffc4001810010100030000000000000000000000000111003151ffda0008010100013f2183b2bd73ffda00\
 0c03010002000300000010f3ffc4001511010100000000000000000000000000000100ffda0008010301013f\
 10700affc400161100030000000000000000000000000000001121ffda0008010201013f10794fffc4001810\
 010100030000000000000000000000000111004191ffda0008010100013f10054f7235e67fffd9";
    let pixels = [
        255, 133, 255, 255, 85, 211, 196, 46, 110, 238, 49, 175, 237, 48, 174, 217, 67, 131, 50,
        58, 69, 94, 102, 113, 125, 178, 126, 107, 115, 126, 131, 139, 150, 132, 185, 133, 58, 185,
        104, 56, 183, 102, 23, 201, 55,
    ];
    check(tail, 5, 3, &pixels);
}

#[test]
fn chroma_halved_in_columns_alone_keeps_its_rows() {
    let tail = "ffc00011080002000303012100021101031101ffc4001500010100000000000000000000000000000005ffc4\
 001810000203000000000000000000000000000002043471ffc4001501010100000000000000000000000000\
 000305ffc4001811000203000000000000000000000000000001033271ffda000c03010002110311003f0099\
 2ecbe82cc74581b3ffd9";
    let pixels = [
        127, 141, 167, 83, 97, 123, 40, 32, 205, 127, 141, 167, 83, 97, 123, 40, 32, 205,
    ];
    check(tail, 2, 3, &pixels);
}

#[test]
fn chroma_ends_at_the_border() {
    let tail = "ffc00011080003000703012200021101031101ffc4001500010100000000000000000000000000000001ffc4\
 001b100002030003000000000000000000000000010203110481b1ffc4001501010100000000000000000000\
 000000000305ffc4001811000301010000000000000000000000000102110003ffda000c0301000211031100\
 3f00bc6b26ef93727a9ef7b35e00050aad68d27a7470d013bfffd9";
    let pixels = [
        201, 194, 227, 144, 140, 163, 130, 129, 134, 114, 120, 106, 227, 238, 204, 58, 75, 30, 227,
        246, 200, 149, 172, 203, 83, 110, 131, 108, 139, 141, 55, 94, 76, 169, 215, 179, 40, 92,
        44, 168, 224, 175, 76, 162, 187, 0, 86, 102, 79, 174, 170, 0, 76, 53, 90, 202, 162, 18,
        139, 88, 88, 212, 160,
    ];
    check(tail, 3, 7, &pixels);
}
