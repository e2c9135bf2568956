;; The two inner loops of a search, sixteen bytes at a step. `kernel.wasm` is this text assembled (test/node/kernel.test.ts).
(module
  (memory (export "memory") 1)

  ;; The Hamming distances of a code to `count` codes that lie one behind the other, as 16-bit numbers.
  ;; A code has `blocks` times sixteen bytes, at most 4095 of them. $codes, $query and $out are addresses.
  (func (export "distances")
    (param $query i32) (param $codes i32) (param $count i32) (param $blocks i32) (param $out i32)
    (local $end i32) (local $stop i32) (local $at i32) (local $sum v128)
    (local.set $end (i32.add (local.get $out) (i32.shl (local.get $count) (i32.const 1))))
    (block $done
      (loop $code
        (br_if $done (i32.ge_u (local.get $out) (local.get $end)))
        (local.set $sum (v128.const i64x2 0 0))
        (local.set $at (local.get $query))
        (local.set $stop (i32.add (local.get $query) (i32.shl (local.get $blocks) (i32.const 4))))
        (block $summed
          (loop $block
            (br_if $summed (i32.ge_u (local.get $at) (local.get $stop)))
            (local.set $sum
              (i16x8.add
                (local.get $sum)
                (i16x8.extadd_pairwise_i8x16_u
                  (i8x16.popcnt (v128.xor (v128.load (local.get $at)) (v128.load (local.get $codes)))))))
            (local.set $at (i32.add (local.get $at) (i32.const 16)))
            (local.set $codes (i32.add (local.get $codes) (i32.const 16)))
            (br $block)))
        (local.set $sum (i32x4.extadd_pairwise_i16x8_u (local.get $sum)))
        (i32.store16
          (local.get $out)
          (i32.add
            (i32.add (i32x4.extract_lane 0 (local.get $sum)) (i32x4.extract_lane 1 (local.get $sum)))
            (i32.add (i32x4.extract_lane 2 (local.get $sum)) (i32x4.extract_lane 3 (local.get $sum)))))
        (local.set $out (i32.add (local.get $out) (i32.const 2)))
        (br $code))))

  ;; The dot products of an int8 vector with `count` others, as 32-bit numbers. A vector has `blocks` times sixteen elements.
  (func (export "products")
    (param $query i32) (param $vectors i32) (param $count i32) (param $blocks i32) (param $out i32)
    (local $end i32) (local $stop i32) (local $at i32) (local $sum v128) (local $one v128) (local $other v128)
    (local.set $end (i32.add (local.get $out) (i32.shl (local.get $count) (i32.const 2))))
    (block $done
      (loop $vector
        (br_if $done (i32.ge_u (local.get $out) (local.get $end)))
        (local.set $sum (v128.const i64x2 0 0))
        (local.set $at (local.get $query))
        (local.set $stop (i32.add (local.get $query) (i32.shl (local.get $blocks) (i32.const 4))))
        (block $summed
          (loop $block
            (br_if $summed (i32.ge_u (local.get $at) (local.get $stop)))
            (local.set $one (v128.load (local.get $at)))
            (local.set $other (v128.load (local.get $vectors)))
            (local.set $sum
              (i32x4.add
                (local.get $sum)
                (i32x4.add
                  (i32x4.dot_i16x8_s
                    (i16x8.extend_low_i8x16_s (local.get $one)) (i16x8.extend_low_i8x16_s (local.get $other)))
                  (i32x4.dot_i16x8_s
                    (i16x8.extend_high_i8x16_s (local.get $one)) (i16x8.extend_high_i8x16_s (local.get $other))))))
            (local.set $at (i32.add (local.get $at) (i32.const 16)))
            (local.set $vectors (i32.add (local.get $vectors) (i32.const 16)))
            (br $block)))
        (i32.store
          (local.get $out)
          (i32.add
            (i32.add (i32x4.extract_lane 0 (local.get $sum)) (i32x4.extract_lane 1 (local.get $sum)))
            (i32.add (i32x4.extract_lane 2 (local.get $sum)) (i32x4.extract_lane 3 (local.get $sum)))))
        (local.set $out (i32.add (local.get $out) (i32.const 4)))
        (br $vector)))))
