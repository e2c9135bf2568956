import eventsourceParser from "../../node_modules/eventsource-parser/dist/index.js?raw";
import litDirective from "../../node_modules/lit-html/directive.js?raw";
import litDirectiveHelpers from "../../node_modules/lit-html/directive-helpers.js?raw";
import litLive from "../../node_modules/lit-html/directives/live.js?raw";
import litHtml from "../../node_modules/lit-html/lit-html.js?raw";
import announce from "./client/announce.js?raw";
import answer from "./client/answer.js?raw";
import api from "./client/api.js?raw";
import attachments from "./client/attachments.js?raw";
import codeSamples from "./client/code-samples.js?raw";
import dialogs from "./client/dialogs.js?raw";
import draft from "./client/draft.js?raw";
import eventRecord from "./client/event-record.js?raw";
import followEnd from "./client/follow-end.js?raw";
import format from "./client/format.js?raw";
import icon from "./client/icon.svg?raw";
import index from "./client/index.html?raw";
import itemView from "./client/item-view.js?raw";
import limitsForm from "./client/limits-form.js?raw";
import longText from "./client/long-text.js?raw";
import look from "./client/look.js?raw";
import main from "./client/main.js?raw";
import operateStyle from "./client/operate.css?raw";
import operate from "./client/operate.js?raw";
import operateAudit from "./client/operate-audit.js?raw";
import operateKeys from "./client/operate-keys.js?raw";
import operateRuns from "./client/operate-runs.js?raw";
import operateServers from "./client/operate-servers.js?raw";
import operateUsage from "./client/operate-usage.js?raw";
import plot from "./client/plot.js?raw";
import recent from "./client/recent.js?raw";
import refresher from "./client/refresher.js?raw";
import requestBody from "./client/request-body.js?raw";
import requestForm from "./client/request-form.js?raw";
import save from "./client/save.js?raw";
import sending from "./client/sending.js?raw";
import session from "./client/session.js?raw";
import signIn from "./client/sign-in.js?raw";
import style from "./client/style.css?raw";
import theme from "./client/theme.js?raw";
import timeline from "./client/timeline.js?raw";
import treeStyle from "./client/tree.css?raw";
import tree from "./client/tree.js?raw";
import treeCompare from "./client/tree-compare.js?raw";
import treeList from "./client/tree-list.js?raw";
import treeModel from "./client/tree-model.js?raw";
import tryView from "./client/try.js?raw";
import turnItems from "./client/turn-items.js?raw";
import turnView from "./client/turn-view.js?raw";

/** The files of the console, by their names in the browser. They are modules of the Worker, and served as they are written. */
export const assets = {
  "index.html": index,
  "style.css": style,
  "tree.css": treeStyle,
  "operate.css": operateStyle,
  "icon.svg": icon,
  "announce.js": announce,
  "answer.js": answer,
  "api.js": api,
  "attachments.js": attachments,
  "code-samples.js": codeSamples,
  "dialogs.js": dialogs,
  "draft.js": draft,
  "event-record.js": eventRecord,
  "follow-end.js": followEnd,
  "format.js": format,
  "item-view.js": itemView,
  "limits-form.js": limitsForm,
  "long-text.js": longText,
  "look.js": look,
  "main.js": main,
  "operate.js": operate,
  "operate-audit.js": operateAudit,
  "operate-keys.js": operateKeys,
  "operate-runs.js": operateRuns,
  "operate-servers.js": operateServers,
  "operate-usage.js": operateUsage,
  "plot.js": plot,
  "recent.js": recent,
  "refresher.js": refresher,
  "request-body.js": requestBody,
  "request-form.js": requestForm,
  "save.js": save,
  "sending.js": sending,
  "session.js": session,
  "sign-in.js": signIn,
  "theme.js": theme,
  "timeline.js": timeline,
  "tree.js": tree,
  "tree-compare.js": treeCompare,
  "tree-list.js": treeList,
  "tree-model.js": treeModel,
  "try.js": tryView,
  "turn-items.js": turnItems,
  "turn-view.js": turnView,
  // Libraries, as their packages have them.
  "lib/lit-html.js": litHtml,
  "lib/directive.js": litDirective,
  "lib/directive-helpers.js": litDirectiveHelpers,
  "lib/directives/live.js": litLive,
  "lib/eventsource-parser.js": eventsourceParser,
};
