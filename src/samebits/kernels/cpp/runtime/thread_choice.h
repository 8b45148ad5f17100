// How many threads a team should run with, decided from times that its first thread measured. It reads no clock itself.
#pragma once

namespace samebits {

// Threads that share a processor with other work make the others wait for milliseconds at every meeting, so a step on all
// threads can take many times as long as on one. This class takes threads away while they cost more than they bring, and
// tries more of them again, at intervals that grow with each failed attempt: a failed attempt costs what was lost in it.
class ThreadChoice {
  public:
    explicit ThreadChoice(int most) : most_(most), count_(most) {}

    int count() const { return count_; }

    // Count a stretch of `seconds` on count() threads, of which the first thread waited `waited` for the others.
    void ran(double seconds, double waited) {
        seconds_ += seconds;
        waited_ += waited;
        pause_ -= seconds;
        held_ += seconds;
        if (count_ > 1 && waited_ > kNoticed && waited_ > kMaxWaiting * seconds_) return take_away(count_ / 2, waited_);
        if (count_ >= failed_ && held_ > last_pause_ && held_ > kWindow) {  // what failed before works now
            if (factor_ > 1) factor_ /= 2;
            held_ = 0;
        }
        if (seconds_ > kWindow) start_window();
        if (count_ < most_ && pause_ <= 0) set_count(2 * count_ < most_ ? 2 * count_ : most_);
    }

    // Count an attempt at which only `came` of count() threads, the first included, had a processor within `waited`.
    void missed(int came, double waited) { take_away(came, waited); }

  private:
    // Half as many threads need twice the time in which the first thread worked. So they are as fast if it waited for half of
    // the time, and faster if it waited longer.
    static constexpr double kMaxWaiting = 0.5;
    static constexpr double kNoticed = 200e-6;  // seconds of waiting that say something; a single interrupt takes less
    static constexpr double kWindow = 5e-3;     // seconds after which what was measured is forgotten
    static constexpr int kMaxFactor = 32;      // attempts then cost some 3 % of the time

    void take_away(int left, double lost) {
        failed_ = count_;
        last_pause_ = pause_ = factor_ * lost;
        if (factor_ < kMaxFactor) factor_ *= 2;
        set_count(left);
    }
    void set_count(int count) {
        count_ = count;
        held_ = 0;
        start_window();
    }
    void start_window() { seconds_ = waited_ = 0; }

    int most_, count_;
    int failed_ = 0;                     // the count of the last failed attempt
    int factor_ = 1;                     // seconds of pause for each second lost in the next failed attempt
    double pause_ = 0, last_pause_ = 0;  // until the next attempt, and how long it was at first
    double seconds_ = 0, waited_ = 0;    // of this window
    double held_ = 0;                    // seconds for which this count has not failed
};

}  // namespace samebits
