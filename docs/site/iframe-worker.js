// The search of the site runs in a worker, which browsers refuse to pages that are opened as files. There, a hidden frame
// takes its place: the script of the worker runs in it, and messages go both ways as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.appendChild(frame)
      const script = frame.contentDocument.createElement("script")
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise(loaded => script.addEventListener("load", loaded))
      script.src = new URL(address, location)
      frame.contentDocument.head.appendChild(script)
    }
    async postMessage(data) {
      await this.ready
      this.inside.dispatchEvent(new MessageEvent("message", { data }))
    }
  }
}
